package scripting

import (
	"maps"
	"slices"

	"github.com/yuin/gopher-lua/ast"
)

// survey is the result of the first pass over the tree.
type survey struct {
	globals map[string]bool // names of assigned globals
	defined int             // number of definitions of the hook
	used    bool            // the script itself uses the hook
	self    bool            // _G is used
	returns bool            // the top level returns
}

// plan selects the optimisations of the second pass. By default a call costs a table for
// globals and one for the result; most scripts need neither.
type plan struct {
	hook string
	// locals are globals to be compiled as locals of the top level, which is
	// indistinguishable without _G. They start with the library's value of their name.
	locals []string
	// direct is set if only the engine calls the hook: a table constructor in its return
	// statement is then returned as a list of names and values.
	direct bool
}

// planned derives the plan from the survey.
func planned(hook string, s *survey) plan {
	const localsMax = 60 // gopher-lua allows 200 together with the script's own
	if s.self || s.returns || len(s.globals) > localsMax {
		return plan{hook: hook}
	}
	return plan{hook: hook, locals: slices.Sorted(maps.Keys(s.globals)), direct: s.defined == 1 && !s.used}
}

// frame declares the locals before a chunk and returns the hook after it.
func (p *plan) frame(chunk []ast.Stmt) []ast.Stmt {
	declared := &ast.LocalAssignStmt{Names: p.locals}
	for _, name := range p.locals {
		declared.Exprs = append(declared.Exprs, at(&ast.IdentExpr{Value: name}, 1))
	}
	do := &ast.DoBlockStmt{Stmts: chunk}
	result := &ast.ReturnStmt{Exprs: []ast.Expr{at(&ast.IdentExpr{Value: p.hook}, 1)}}
	return []ast.Stmt{at(declared, 1), at(do, 1), at(result, 1)}
}

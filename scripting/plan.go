package scripting

import (
	"maps"
	"slices"

	"github.com/yuin/gopher-lua/ast"
)

// survey is what a first pass over the tree finds out.
type survey struct {
	globals map[string]bool // names assigned that are not locals
	defined int             // times the hook's function is
	used    bool            // the hook's function is, by the script itself
	self    bool            // _G is
	returns bool            // the top level does
}

// plan is what the second pass may do because of it. Globals cost a table for
// each message, and the result another; most scripts need neither.
type plan struct {
	hook string
	// locals are globals that become locals of the top level: nobody can tell the
	// difference without _G. They keep what the library has under their name.
	locals []string
	// direct is set if nobody but us calls the hook: a table that it returns right
	// where it is made is returned field by field instead.
	direct bool
}

// planned decides what a script's tree allows.
func planned(hook string, s *survey) plan {
	const localsMax = 60 // with a script's own there are 200
	if s.self || s.returns || len(s.globals) > localsMax {
		return plan{hook: hook}
	}
	return plan{hook: hook, locals: slices.Sorted(maps.Keys(s.globals)), direct: s.defined == 1 && !s.used}
}

// frame puts the locals around a chunk, and the hook's function behind it.
func (p *plan) frame(chunk []ast.Stmt) []ast.Stmt {
	declared := &ast.LocalAssignStmt{Names: p.locals}
	for _, name := range p.locals {
		declared.Exprs = append(declared.Exprs, at(&ast.IdentExpr{Value: name}, 1))
	}
	do := &ast.DoBlockStmt{Stmts: chunk}
	result := &ast.ReturnStmt{Exprs: []ast.Expr{at(&ast.IdentExpr{Value: p.hook}, 1)}}
	return []ast.Stmt{at(declared, 1), at(do, 1), at(result, 1)}
}

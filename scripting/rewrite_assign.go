package scripting

import (
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// What becomes of assignments:
//
//	statement              becomes
//	x = v                  itself
//	t[k] = v               set(t, k, v)
//	t[k], x = v, w         do local o, k, v, w = t, k, v, w; set(o, k, v); x = w end
//	x, y = f(), 1          the same, where gopher-lua would miscompile it (misplaced)
//
// A local is assigned without a guard: it is a register, and its value has been charged where it
// was created. A global is a field of the environment, and charged once for the run by its name
// (costGlobal).

// assign replaces assignments to fields by setGuard. With several targets all values are
// first evaluated into locals, one of the evaluation orders that Lua permits.
func (r *rewriter) assign(s *ast.AssignStmt) ast.Stmt {
	line := s.Line()
	fields := false
	for i, e := range s.Lhs {
		switch e := e.(type) {
		case *ast.AttrGetExpr:
			fields = true
			e.Object, e.Key = r.expression(e.Object), r.expression(e.Key)
		case *ast.IdentExpr:
			r.assigned(e)
		default:
			refuse(line, "cannot assign to this")
		}
		s.Lhs[i] = e
	}
	r.expressions(s.Rhs)
	if !fields && !misplaced(s) {
		return s
	}
	r.constant(guardSet)
	if fields && len(s.Lhs) == 1 {
		target := s.Lhs[0].(*ast.AttrGetExpr)
		args := append([]ast.Expr{target.Object, target.Key}, s.Rhs...)
		return callStmt(line, guardSet, one(args)...)
	}
	return r.assignMany(s)
}

// misplaced reports whether gopher-lua miscompiles an assignment to locals. It places a
// call with a fixed number of results in the register of its target if that is the last
// parameter, and the call's arguments then overwrite the registers behind it. Where a
// last call yields one value for one target, the rewriter wraps it.
func misplaced(s *ast.AssignStmt) bool {
	if len(s.Lhs) == len(s.Rhs) {
		if c, ok := s.Rhs[len(s.Rhs)-1].(*ast.FuncCallExpr); ok {
			c.AdjustRet = false
		}
	}
	for i, e := range s.Rhs {
		c, ok := e.(*ast.FuncCallExpr)
		if ok && i < len(s.Lhs) && (c.AdjustRet || i < len(s.Rhs)-1) {
			return true
		}
	}
	return false
}

// assignMany rewrites an assignment to several targets: objects, keys and values are evaluated
// into locals of a block, then assigned from left to right.
func (r *rewriter) assignMany(s *ast.AssignStmt) ast.Stmt {
	line := s.Line()
	var targets, values local
	var sets []ast.Stmt
	for i, e := range s.Lhs {
		value := values.name("value", i, line)
		target, ok := e.(*ast.AttrGetExpr)
		if !ok {
			set := &ast.AssignStmt{Lhs: []ast.Expr{e}, Rhs: []ast.Expr{value}}
			set.SetLine(line)
			sets = append(sets, set)
			continue
		}
		object, key := targets.name("object", i, line), targets.name("key", i, line)
		targets.exprs = append(targets.exprs, target.Object, target.Key)
		sets = append(sets, callStmt(line, guardSet, object, key, value))
	}
	values.exprs = s.Rhs
	var stmts []ast.Stmt
	if len(targets.names) > 0 {
		stmts = append(stmts, targets.stmt(line))
	}
	do := &ast.DoBlockStmt{Stmts: append(append(stmts, values.stmt(line)), sets...)}
	do.SetLine(line)
	return do
}

// local is a declaration of generated names, which no script can contain.
type local struct {
	names []string
	exprs []ast.Expr
}

// name declares a local and returns its use.
func (l *local) name(word string, i, line int) *ast.IdentExpr {
	name := "(" + word + " " + strconv.Itoa(i) + ")"
	l.names = append(l.names, name)
	return at(&ast.IdentExpr{Value: name}, line)
}

// stmt returns the declaration. Where each local has its expression, a trailing call yields one
// value.
func (l *local) stmt(line int) ast.Stmt {
	exprs := l.exprs
	if len(l.names) == len(exprs) {
		exprs = one(exprs)
	}
	s := &ast.LocalAssignStmt{Names: l.names, Exprs: exprs}
	s.SetLine(line)
	return s
}

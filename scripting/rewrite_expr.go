package scripting

import (
	"slices"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// What becomes of expressions, and what their block is charged for one evaluation:
//
//	expression                    becomes                                charged
//	{ 1, a = 2 }                  itself                                 the table, its elements and fields
//	{ f() }, { ... }              { values(f()) }                        as above; at run time each value
//	{ [k] = v }                   fill({}, k, v)                         the table; at run time the field
//	a .. b .. c                   concat(a, b, c)                        at run time the result
//	function () end               itself, its body with its own charge   the closure and its upvalues
//	any other                     itself                                 nothing
//
// An expression is evaluated once, in the same order, and yields the same number of values as
// before. The rewriter keeps to the limits of gopher-lua's compiler, which panics or miscompiles
// beyond them: registers, upvalues, constants and the depth of its recursion.

// expressions rewrites a list in place.
func (r *rewriter) expressions(exprs []ast.Expr) {
	for i, e := range exprs {
		exprs[i] = r.expression(e)
	}
}

// expression rewrites an expression and adds its allocations to the cost of the current
// block.
func (r *rewriter) expression(e ast.Expr) ast.Expr {
	if r.depth++; r.depth > nestingMax {
		refuse(e.Line(), "nested too deeply, at most %d levels", nestingMax)
	}
	folds := r.folds
	defer func() { r.depth, r.folds = r.depth-1, folds }()
	r.step(e, folds)
	switch e := e.(type) {
	case *ast.StringExpr:
		r.literal(e)
	case *ast.NumberExpr:
		r.constant(e.Value)
	case *ast.IdentExpr:
		r.read(e)
	case *ast.AttrGetExpr:
		e.Object, e.Key = r.expression(e.Object), r.expression(e.Key)
	case *ast.TableExpr:
		return r.constructor(e)
	case *ast.FuncCallExpr:
		if e.Receiver != nil {
			e.Receiver = r.expression(e.Receiver)
			r.constant(e.Method)
		} else {
			e.Func = r.expression(e.Func)
		}
		if n := len(e.Args); n > valuesMax {
			refuse(e.Line(), "a call with %d arguments, at most %d", n, valuesMax)
		}
		r.expressions(e.Args)
	case *ast.LogicalOpExpr:
		e.Lhs, e.Rhs = r.expression(e.Lhs), r.expression(e.Rhs)
	case *ast.RelationalOpExpr:
		e.Lhs, e.Rhs = r.expression(e.Lhs), r.expression(e.Rhs)
	case *ast.ArithmeticOpExpr:
		e.Lhs, e.Rhs = r.expression(e.Lhs), r.expression(e.Rhs)
	case *ast.StringConcatOpExpr:
		return r.concat(e)
	case *ast.UnaryMinusOpExpr:
		e.Expr = r.expression(e.Expr)
	case *ast.UnaryNotOpExpr:
		e.Expr = r.expression(e.Expr)
	case *ast.UnaryLenOpExpr:
		e.Expr = r.expression(e.Expr)
	case *ast.FunctionExpr:
		r.function(e, false)
	}
	return e
}

// step adds the compiler's effort for an expression. Constant folding visits an operand
// once for each enclosing arithmetic expression.
func (r *rewriter) step(e ast.Expr, folds int) {
	r.work.steps += effortNode + 2*folds
	r.folds = 0
	switch e.(type) {
	case *ast.ArithmeticOpExpr, *ast.UnaryMinusOpExpr:
		if r.folds = folds + 1; r.folds > foldsMax {
			refuse(e.Line(), "arithmetic of more than %d operations in one expression", foldsMax)
		}
	}
	r.checkEffort(e)
}

// function rewrites a function body, charged on each call, and charges the enclosing
// block for the closure.
func (r *rewriter) function(e *ast.FunctionExpr, entry bool) {
	if n := len(e.ParList.Names); n > parametersMax {
		refuse(e.Line(), "a function with %d parameters, at most %d", n, parametersMax)
	}
	if r.count++; r.count > functionsMax {
		refuse(e.Line(), "more than %d functions", functionsMax)
	}
	f := newFunction(r.fn)
	f.entry = entry
	r.fn = f
	r.work.steps += effortFunction
	e.Stmts = r.block(e.Stmts, 0, e.ParList.Names...)
	r.fn = f.parent
	if n := len(f.upvalues); n > upvaluesMax {
		refuse(e.Line(), "a function that uses %d locals from outside, at most %d", n, upvaluesMax)
	}
	r.work.steps += len(f.upvalues) * r.fn.visible
	r.cost += costClosure + len(f.upvalues)*costUpvalue
}

// concat replaces a right-leaning chain `a .. b .. c` by one guard call, or by a tree of
// calls if it is long, as every operand takes a register.
func (r *rewriter) concat(e *ast.StringConcatOpExpr) ast.Expr {
	var operands []ast.Expr
	var rest ast.Expr = e
	for {
		c, ok := rest.(*ast.StringConcatOpExpr)
		if !ok {
			break
		}
		operands = append(operands, single(r.expression(c.Lhs)))
		rest = c.Rhs
	}
	operands = append(operands, single(r.expression(rest)))
	r.constant(guardConcat)
	for len(operands) > argumentsMax {
		var joined []ast.Expr
		for group := range slices.Chunk(operands, argumentsMax) {
			joined = append(joined, join(e.Line(), group))
		}
		operands = joined
	}
	return join(e.Line(), operands)
}

// join returns the concatenation of operands, at most argumentsMax.
func join(line int, operands []ast.Expr) ast.Expr {
	c := call(line, guardConcat, operands...)
	c.AdjustRet = true
	return c
}

// constructor charges the written fields. Fields with computed keys are set by fillGuard,
// because a large number would grow the array part; a trailing multi-value expression
// goes through valuesGuard, which counts its values at run time.
func (r *rewriter) constructor(e *ast.TableExpr) ast.Expr {
	if len(e.Fields) > fieldsMax {
		refuse(e.Line(), "a table constructor of %d fields, at most %d", len(e.Fields), fieldsMax)
	}
	line := e.Line()
	plain := make([]*ast.Field, 0, len(e.Fields))
	var pairs []ast.Expr
	named := 0
	for i, f := range e.Fields {
		f.Value = r.expression(f.Value)
		last := i == len(e.Fields)-1
		switch {
		case f.Key == nil && last && many(f.Value):
			f.Value = call(f.Value.Line(), guardValues, f.Value)
			plain = append(plain, f)
			r.cost += costArray
		case f.Key == nil:
			r.cost += costItem + valueCost(f.Value)
			plain = append(plain, f)
		case isString(f.Key):
			r.literal(f.Key)
			r.cost += valueCost(f.Value)
			named++
			plain = append(plain, f)
		default:
			pairs = append(pairs, single(r.expression(f.Key)), single(f.Value))
		}
	}
	if n := len(plain); n > 0 && n < len(e.Fields) && plain[n-1].Key == nil && plain[n-1] != e.Fields[len(e.Fields)-1] {
		// Only now in last position, where it must not expand to more values.
		plain[n-1].Value = single(plain[n-1].Value)
	}
	r.cost += costTable
	if named > 0 {
		r.cost += costHashed + named*costNamed
	}
	e.Fields = plain
	var result ast.Expr = e
	for len(pairs) > 0 {
		n := min(len(pairs), argumentsMax)
		fill := call(line, guardFill, append([]ast.Expr{result}, pairs[:n]...)...)
		fill.AdjustRet = true
		result, pairs = fill, pairs[n:]
	}
	return result
}

// plainFields reports whether all fields have constant names, and are few enough to be returned
// as values: a name and a value take a register each.
func plainFields(e *ast.TableExpr) bool {
	for _, f := range e.Fields {
		if f.Key == nil || !isString(f.Key) {
			return false
		}
	}
	return len(e.Fields) <= argumentsMax/2
}

// direct turns a result table into a list of names and values behind the mark.
func (r *rewriter) direct(e *ast.TableExpr) []ast.Expr {
	exprs := []ast.Expr{at(&ast.StringExpr{Value: guardFields}, e.Line())}
	for _, f := range e.Fields {
		r.literal(f.Key)
		exprs = append(exprs, f.Key, single(r.expression(f.Value)))
	}
	return exprs
}

const (
	costHashed = 720 // a hash part created with the table
	costNamed  = 200 // each field in it
)

// valueCost returns what a table entry may retain in addition. Constants belong to the
// script.
func valueCost(e ast.Expr) int {
	switch e.(type) {
	case *ast.StringExpr, *ast.NumberExpr, *ast.TrueExpr, *ast.FalseExpr, *ast.NilExpr,
		*ast.FunctionExpr, *ast.TableExpr, *ast.StringConcatOpExpr:
		return 0
	default:
		return costNumbers
	}
}

// isString reports whether an expression is a constant string.
func isString(e ast.Expr) bool {
	_, ok := e.(*ast.StringExpr)
	return ok
}

// literal refuses strings with the prefix of guards.
func (r *rewriter) literal(e ast.Expr) {
	s, ok := e.(*ast.StringExpr)
	if !ok {
		return
	}
	if strings.HasPrefix(s.Value, guardPrefix) {
		refuse(e.Line(), "this string is reserved")
	}
	r.constant(s.Value)
}

// first returns the only expression of a list, or nil.
func first(exprs []ast.Expr) ast.Expr {
	if len(exprs) != 1 {
		return nil
	}
	return exprs[0]
}

// at sets the line of a generated node, so that errors in it refer to the original.
func at[N ast.PositionHolder](n N, line int) N {
	n.SetLine(line)
	n.SetLastLine(line)
	return n
}

// call returns the call of a guard, by the name that the linker replaces.
func call(line int, guard string, args ...ast.Expr) *ast.FuncCallExpr {
	return at(&ast.FuncCallExpr{Func: at(&ast.StringExpr{Value: guard}, line), Args: args}, line)
}

// callStmt returns the call of a guard as a statement.
func callStmt(line int, guard string, args ...ast.Expr) ast.Stmt {
	return at(&ast.FuncCallStmt{Expr: call(line, guard, args...)}, line)
}

// one makes each expression yield exactly one value, also a trailing call or `...`.
func one(exprs []ast.Expr) []ast.Expr {
	if n := len(exprs); n > 0 {
		exprs[n-1] = single(exprs[n-1])
	}
	return exprs
}

// single makes an expression yield exactly one value.
func single(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return e
}

// many reports whether a trailing expression yields any number of values.
func many(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return !e.AdjustRet
	case *ast.Comma3Expr:
		return !e.AdjustRet
	}
	return false
}

package scripting

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/yuin/gopher-lua/ast"
)

// rewriter turns a script's syntax tree into one that keeps to its memory limit.
// Each block begins with a charge for what its own statements allocate when they
// run once: tables, fields, functions. What allocates an amount that only shows
// at run time becomes a call of a guard (guards.go): `a .. b`, `t[k] = v`, a
// constructor with computed keys or with a tail of many values.
//
// Guards are named by string constants that a script cannot contain, and are put
// in their places after compilation.
type rewriter struct {
	plan  plan
	fn    *function
	pacer *pacer
	work  effort
	depth int
	folds int // arithmetic expressions right around the one at hand
	count int // of functions
	cost  int // of the block at hand
	seen  survey
}

// function is what is known of the Lua function being rewritten.
type function struct {
	parent    *function
	scopes    []scope // innermost last
	visible   int     // declarations in them
	upvalues  map[string]bool
	constants map[string]int // to their place
	entry     bool           // it is the hook's, and the plan is direct
}

// scope is what a block declares.
type scope struct {
	names    map[string]bool
	declared int // a name may be so more than once
}

func newFunction(parent *function) *function {
	return &function{parent: parent, upvalues: map[string]bool{}, constants: map[string]int{}}
}

// rewritten is a script's tree after the rewriting. If the plan has locals, the
// chunk returns the hook's function.
type rewritten struct {
	chunk  []ast.Stmt
	cost   int // bytes that running the chunk once allocates, known in advance
	survey survey
	sole   bool // the hook's function is all there is
}

const (
	guardPrefix = "\x00fila "
	guardCharge = guardPrefix + "charge"
	guardConcat = guardPrefix + "concat"
	guardSet    = guardPrefix + "set"
	guardFill   = guardPrefix + "fill"
	guardValues = guardPrefix + "values"
	guardFields = guardPrefix + "fields" // not called: it marks a result given field by field

	nestingMax    = 400  // of expressions and blocks: recursion in the compiler
	fieldsMax     = 5000 // of a constructor: gopher-lua's instruction counts no further
	argumentsMax  = 40   // of a guard: they all take a register
	upvaluesMax   = 200  // of a function: gopher-lua counts them in a byte
	parametersMax = 100
	valuesMax     = 250 // of a call: there are no more registers
	functionsMax  = 500 // of a script: the compiler makes room for 1024 instructions each
	foldsMax      = 100 // of arithmetic: see step
)

// Bytes that things cost, as upper bounds; TestChargesCoverWhatIsAllocated holds
// them to it. A number is kept in a block of 32 that lives as long as any of
// them does, so whatever may hold a number is charged for a block.
const (
	costNumbers = 256
	costTable   = 160
	costItem    = 48 // an element of an array, with what growing it left behind
	costArray   = 640
	costHash    = 2600 // the first field of a table that was made without any
	costField   = 420  // each further one, with what growing left behind
	costClosure = 160
	costUpvalue = 80 + costNumbers
	costGlobal  = costField + costNumbers
	costString  = 48 // beside its bytes
)

// refusal ends the rewriting; it never leaves this package as a panic.
type refusal struct {
	line int
	text string
}

func refuse(line int, format string, args ...any) {
	panic(refusal{line, fmt.Sprintf(format, args...)})
}

func rewrite(chunk []ast.Stmt, p plan, pace *pacer) rewritten {
	r := &rewriter{plan: p, pacer: pace, fn: newFunction(nil), seen: survey{globals: map[string]bool{}}}
	r.fn.scopes = []scope{{names: map[string]bool{}}}
	sole := false
	if len(chunk) == 1 {
		if def, ok := chunk[0].(*ast.FuncDefStmt); ok {
			name, ok := def.Name.Func.(*ast.IdentExpr)
			sole = ok && name.Value == p.hook
		}
	}
	r.declare(p.locals...)
	// The chunk runs once, so it needs no charge of its own.
	r.enter()
	chunk = r.statements(chunk)
	if len(p.locals) > 0 {
		chunk = p.frame(chunk)
	}
	return rewritten{chunk: chunk, cost: r.cost + len(r.seen.globals)*costGlobal, survey: r.seen, sole: sole}
}

// block rewrites what is a scope of its own and may run any number of times.
// The names are declared in it.
func (r *rewriter) block(stmts []ast.Stmt, extra int, names ...string) []ast.Stmt {
	r.enter(names...)
	stmts = r.charged(stmts, extra)
	r.leave()
	return stmts
}

// charged rewrites statements in the scope at hand and puts their charge first.
func (r *rewriter) charged(stmts []ast.Stmt, extra int) []ast.Stmt {
	outer := r.cost
	r.cost = extra
	stmts = r.statements(stmts)
	cost := r.cost
	r.cost = outer
	if cost == 0 {
		return stmts
	}
	line := 1
	if len(stmts) > 0 {
		line = stmts[0].Line()
	}
	return append([]ast.Stmt{r.charge(line, cost)}, stmts...)
}

// charge is the call that stands at the head of a block.
func (r *rewriter) charge(line, cost int) ast.Stmt {
	amount := strconv.Itoa(cost)
	r.constant(guardCharge)
	r.constant(amount)
	return callStmt(line, guardCharge, at(&ast.NumberExpr{Value: amount}, line))
}

// constant counts the compiler's search for it among those of the function.
func (r *rewriter) constant(c string) {
	place, ok := r.fn.constants[c]
	if !ok {
		place = len(r.fn.constants)
		r.fn.constants[c] = place
	}
	r.work.steps += place
}

func (r *rewriter) enter(names ...string) {
	if r.depth++; r.depth > nestingMax {
		refuse(0, "nested too deeply, at most %d levels", nestingMax)
	}
	r.fn.scopes = append(r.fn.scopes, scope{names: make(map[string]bool, len(names))})
	r.declare(names...)
	r.work.steps += effortBlock
}

func (r *rewriter) leave() {
	r.depth--
	last := len(r.fn.scopes) - 1
	r.fn.visible -= r.fn.scopes[last].declared
	r.fn.scopes = r.fn.scopes[:last]
}

func (r *rewriter) declare(names ...string) {
	s := &r.fn.scopes[len(r.fn.scopes)-1]
	for _, n := range names {
		s.names[n] = true
	}
	s.declared += len(names)
	r.fn.visible += len(names)
}

// resolve notes the use of a name: every function between the use and the
// declaration holds it as an upvalue. It tells whether there is a declaration.
func (r *rewriter) resolve(name string) bool {
	for f := r.fn; f != nil; f = f.parent {
		r.work.steps += f.visible + 2*len(f.scopes)
		for _, s := range f.scopes {
			if s.names[name] {
				for g := r.fn; g != f; g = g.parent {
					g.upvalues[name] = true
				}
				return true
			}
		}
	}
	r.constant(name)
	return false
}

func (r *rewriter) assigned(e *ast.IdentExpr) {
	if r.resolve(e.Value) {
		return
	}
	r.constant(e.Value) // once more
	r.seen.globals[e.Value] = true
	if e.Value == r.plan.hook {
		r.seen.used = true // unless define knows better
	}
}

// read notes the use of a name's value.
func (r *rewriter) read(e *ast.IdentExpr) {
	if r.resolve(e.Value) {
		return
	}
	switch e.Value {
	case "_G":
		r.seen.self = true
	case r.plan.hook:
		r.seen.used = true
	}
}

// statements rewrites them in place as far as the compiler does not have to rest
// between them.
func (r *rewriter) statements(stmts []ast.Stmt) []ast.Stmt {
	for i := 0; i < len(stmts); i++ {
		r.work.steps += effortNode
		if w := &r.work; w.steps-w.rested > effortRest {
			stmts = slices.Insert(stmts, i, resting(stmts[i].Line(), r.pacer, w.steps-w.rested))
			w.rested = w.steps
			i++
		}
		stmts[i] = r.statement(stmts[i])
	}
	return stmts
}

func (r *rewriter) statement(s ast.Stmt) ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return r.assign(s)
	case *ast.LocalAssignStmt:
		// `local function f` may call itself, `local f = function` may not; the
		// parser hands out the same tree for both, and the compiler takes both for
		// the first.
		if _, ok := first(s.Exprs).(*ast.FunctionExpr); ok && len(s.Names) == 1 {
			r.declare(s.Names...)
		}
		r.expressions(s.Exprs)
		r.declare(s.Names...)
	case *ast.FuncCallStmt:
		s.Expr = r.expression(s.Expr)
	case *ast.DoBlockStmt:
		s.Stmts = r.block(s.Stmts, 0)
	case *ast.WhileStmt:
		cost := r.condition(&s.Condition)
		s.Stmts = r.block(s.Stmts, cost)
	case *ast.RepeatStmt:
		r.repeat(s)
	case *ast.IfStmt:
		s.Condition = r.expression(s.Condition)
		s.Then = r.block(s.Then, 0)
		s.Else = r.block(s.Else, 0)
	case *ast.NumberForStmt:
		s.Init, s.Limit = r.expression(s.Init), r.expression(s.Limit)
		if s.Step != nil {
			s.Step = r.expression(s.Step)
		}
		s.Stmts = r.block(s.Stmts, 0, s.Name)
	case *ast.GenericForStmt:
		r.expressions(s.Exprs)
		s.Stmts = r.block(s.Stmts, 0, s.Names...)
	case *ast.FuncDefStmt:
		return r.define(s)
	case *ast.ReturnStmt:
		r.seen.returns = r.seen.returns || r.fn.parent == nil
		if t, ok := first(s.Exprs).(*ast.TableExpr); ok && r.fn.entry && plainFields(t) {
			s.Exprs = r.direct(t)
			break
		}
		r.expressions(s.Exprs)
	case *ast.LabelStmt, *ast.GotoStmt:
		// A jump back would run a block's statements again without its charge.
		refuse(s.Line(), "goto is not supported")
	}
	return s
}

// condition rewrites an expression that each round of a loop evaluates, and
// once more: its cost is due before the loop and in each round.
func (r *rewriter) condition(e *ast.Expr) int {
	before := r.cost
	*e = r.expression(*e)
	return r.cost - before
}

// repeat is a block whose condition sees what the block declares.
func (r *rewriter) repeat(s *ast.RepeatStmt) {
	r.enter()
	outer := r.cost
	r.cost = 0
	s.Stmts = r.statements(s.Stmts)
	s.Condition = r.expression(s.Condition)
	cost := r.cost
	r.cost = outer
	r.leave()
	if cost > 0 {
		s.Stmts = append([]ast.Stmt{r.charge(s.Line(), cost)}, s.Stmts...)
	}
}

// assign hands assignments to fields to the guard. With several targets, all is
// evaluated into locals first and then assigned, which is one of the orders that
// Lua allows.
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

// misplaced tells whether gopher-lua would get an assignment to locals wrong. A
// call whose number of values is fixed is made in the place of the local it is
// assigned to, if that is the last parameter, and its arguments then overwrite
// what comes behind. A last call that is to give one value for one target need
// not be fixed, so that one is made harmless here.
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

// local is a declaration in the making, of names that no script can write.
type local struct {
	names []string
	exprs []ast.Expr
}

func (l *local) name(word string, i, line int) *ast.IdentExpr {
	name := "(" + word + " " + strconv.Itoa(i) + ")"
	l.names = append(l.names, name)
	return at(&ast.IdentExpr{Value: name}, line)
}

func (l *local) stmt(line int) ast.Stmt {
	exprs := l.exprs
	if len(l.names) == len(exprs) {
		exprs = one(exprs)
	}
	s := &ast.LocalAssignStmt{Names: l.names, Exprs: exprs}
	s.SetLine(line)
	return s
}

// define rewrites `function a.b:c() end`, an assignment to a field unless the
// name is a plain one.
func (r *rewriter) define(s *ast.FuncDefStmt) ast.Stmt {
	line := s.Line()
	if name, ok := s.Name.Func.(*ast.IdentExpr); ok {
		used := r.seen.used
		r.assigned(name)
		entry := name.Value == r.plan.hook && r.fn.parent == nil
		if entry && r.seen.globals[name.Value] {
			r.seen.used = used
			r.seen.defined++
		}
		r.function(s.Func, entry && r.plan.direct)
		return s
	}
	var object, key ast.Expr
	if s.Name.Method != "" {
		object, key = s.Name.Receiver, at(&ast.StringExpr{Value: s.Name.Method}, line)
		s.Func.ParList.Names = append([]string{"self"}, s.Func.ParList.Names...)
	} else {
		field := s.Name.Func.(*ast.AttrGetExpr) // the grammar has no third form
		object, key = field.Object, field.Key
	}
	object = r.expression(object)
	r.literal(key)
	return callStmt(line, guardSet, object, key, r.expression(s.Func))
}

// literal refuses a string that names a guard.
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

func first(exprs []ast.Expr) ast.Expr {
	if len(exprs) != 1 {
		return nil
	}
	return exprs[0]
}

// at gives a new node the line of what it stands for, so that errors in it name
// the right one.
func at[N ast.PositionHolder](n N, line int) N {
	n.SetLine(line)
	n.SetLastLine(line)
	return n
}

func call(line int, guard string, args ...ast.Expr) *ast.FuncCallExpr {
	return at(&ast.FuncCallExpr{Func: at(&ast.StringExpr{Value: guard}, line), Args: args}, line)
}

func callStmt(line int, guard string, args ...ast.Expr) ast.Stmt {
	return at(&ast.FuncCallStmt{Expr: call(line, guard, args...)}, line)
}

// one makes each expression stand for exactly one value, also a call or `...` in
// last place.
func one(exprs []ast.Expr) []ast.Expr {
	if n := len(exprs); n > 0 {
		exprs[n-1] = single(exprs[n-1])
	}
	return exprs
}

func single(e ast.Expr) ast.Expr {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		e.AdjustRet = true
	case *ast.Comma3Expr:
		e.AdjustRet = true
	}
	return e
}

// many tells whether an expression in last place stands for any number of values.
func many(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.FuncCallExpr:
		return !e.AdjustRet
	case *ast.Comma3Expr:
		return !e.AdjustRet
	}
	return false
}

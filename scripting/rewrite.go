package scripting

import (
	"fmt"
	"strconv"

	"github.com/yuin/gopher-lua/ast"
)

// rewriter transforms a script's syntax tree so that all allocations are charged. Each
// block begins with a charge for what one run of its own statements allocates: tables,
// fields, functions. Operations whose allocation depends on run-time values become calls
// of a guard (guards.go): `a .. b`, `t[k] = v`, and constructors with computed keys or a
// multi-value tail.
//
// For example:
//
//	local t = { a = 1 }          charge(1080)  local t = { a = 1 }
//	t.b = t.a .. "x"             set(t, "b", concat(t.a, "x"))
//
// A block is charged at its head and as a whole, also for statements that a break or return
// leaves out: the charge is an upper bound, and the cost of charging is one call per block.
// The body of a loop is charged in each iteration.
//
// The rewriter also counts what compiling will cost (effort), and refuses with a panic of type
// refusal what exceeds a limit of the compiler or of that effort.
//
// Guards are referred to by string constants that no script may contain; the linker
// replaces these by the functions.
type rewriter struct {
	plan  plan
	fn    *function
	work  *effort
	end   int // steps of work at which the script is refused
	depth int
	folds int // enclosing arithmetic expressions
	count int // functions so far
	cost  int // bytes of the current block
	seen  survey
}

// function is the state of the Lua function being rewritten.
type function struct {
	parent    *function
	scopes    []scope // innermost last
	visible   int     // number of declarations in scopes
	upvalues  map[string]bool
	constants map[string]int // index by constant
	entry     bool           // it is the hook and the plan is direct
}

// scope is the declarations of a block.
type scope struct {
	names    map[string]bool
	declared int // declarations, repeated names included
}

func newFunction(parent *function) *function {
	return &function{parent: parent, upvalues: map[string]bool{}, constants: map[string]int{}}
}

// rewritten is the result. If the plan has locals, the chunk returns the hook.
type rewritten struct {
	chunk  []ast.Stmt
	cost   int // bytes that one run of the chunk allocates
	survey survey
	sole   bool // the script consists of the hook's definition only
}

const (
	guardPrefix = "\x00fila "
	guardCharge = guardPrefix + "charge"
	guardConcat = guardPrefix + "concat"
	guardSet    = guardPrefix + "set"
	guardFill   = guardPrefix + "fill"
	guardValues = guardPrefix + "values"
	guardFields = guardPrefix + "fields" // never called: it marks a direct result

	nestingMax    = 400  // expressions and blocks; the compiler recurses
	fieldsMax     = 5000 // fields of a constructor; the limit of gopher-lua's instruction
	argumentsMax  = 40   // arguments of a guard; each takes a register
	upvaluesMax   = 200  // upvalues of a function; gopher-lua counts them in a byte
	parametersMax = 100
	valuesMax     = 250 // arguments of a call; the number of registers
	functionsMax  = 500 // functions of a script; the compiler allocates 1024 instructions for each
	foldsMax      = 100 // nested arithmetic, see step
)

// Upper bounds of allocations in bytes; TestChargesCoverWhatIsAllocated verifies them.
// Numbers are allocated in blocks of 32 that live as long as any of them, so whatever may
// hold a number is charged for a block.
const (
	costNumbers = 256
	costTable   = 160
	costItem    = 48 // an array element, with the garbage of growing
	costArray   = 640
	costHash    = 2600 // the first field of a table created without fields
	costField   = 420  // a further field, with the garbage of growing
	costClosure = 160
	costUpvalue = 80 + costNumbers
	costGlobal  = costField + costNumbers
	costString  = 48 // without its bytes
)

// refusal is the panic value that ends the rewriting; translate recovers it.
type refusal struct {
	line int
	text string
}

func refuse(line int, format string, args ...any) {
	panic(refusal{line, fmt.Sprintf(format, args...)})
}

// rewrite rewrites a whole source according to a plan, and adds the compiler's effort to work.
func rewrite(chunk []ast.Stmt, p plan, work *effort) rewritten {
	r := &rewriter{plan: p, work: work, end: work.steps + effortMax, fn: newFunction(nil), seen: survey{globals: map[string]bool{}}}
	r.fn.scopes = []scope{{names: map[string]bool{}}}
	sole := false
	if len(chunk) == 1 {
		if def, ok := chunk[0].(*ast.FuncDefStmt); ok {
			name, ok := def.Name.Func.(*ast.IdentExpr)
			sole = ok && name.Value == p.hook
		}
	}
	r.declare(p.locals...)
	// The chunk runs once: compile charges it.
	r.enter()
	chunk = r.statements(chunk)
	if len(p.locals) > 0 {
		chunk = p.frame(chunk)
	}
	return rewritten{chunk: chunk, cost: r.cost + len(r.seen.globals)*costGlobal, survey: r.seen, sole: sole}
}

// block rewrites a nested scope that may run any number of times. names are declared in
// it.
func (r *rewriter) block(stmts []ast.Stmt, extra int, names ...string) []ast.Stmt {
	r.enter(names...)
	stmts = r.charged(stmts, extra)
	r.leave()
	return stmts
}

// charged rewrites statements in the current scope and prepends their charge.
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

// charge returns the call of chargeGuard for a block.
func (r *rewriter) charge(line, cost int) ast.Stmt {
	amount := strconv.Itoa(cost)
	r.constant(guardCharge)
	r.constant(amount)
	return callStmt(line, guardCharge, at(&ast.NumberExpr{Value: amount}, line))
}

// constant adds the compiler's linear search for a constant to the effort.
func (r *rewriter) constant(c string) {
	place, ok := r.fn.constants[c]
	if !ok {
		place = len(r.fn.constants)
		r.fn.constants[c] = place
	}
	r.work.steps += place
}

// enter opens a scope with declarations.
func (r *rewriter) enter(names ...string) {
	if r.depth++; r.depth > nestingMax {
		refuse(0, "nested too deeply, at most %d levels", nestingMax)
	}
	r.fn.scopes = append(r.fn.scopes, scope{names: make(map[string]bool, len(names))})
	r.declare(names...)
	r.work.steps += effortBlock
}

// leave closes the innermost scope.
func (r *rewriter) leave() {
	r.depth--
	last := len(r.fn.scopes) - 1
	r.fn.visible -= r.fn.scopes[last].declared
	r.fn.scopes = r.fn.scopes[:last]
}

// declare adds names to the innermost scope. A repeated name shadows the earlier one, and the
// compiler searches both.
func (r *rewriter) declare(names ...string) {
	s := &r.fn.scopes[len(r.fn.scopes)-1]
	for _, n := range names {
		s.names[n] = true
	}
	s.declared += len(names)
	r.fn.visible += len(names)
}

// resolve records the use of a name as an upvalue of every function between use and
// declaration. It returns false for globals.
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

// assigned records an assignment to a name.
func (r *rewriter) assigned(e *ast.IdentExpr) {
	if r.resolve(e.Value) {
		return
	}
	r.constant(e.Value) // looked up a second time
	r.seen.globals[e.Value] = true
	if e.Value == r.plan.hook {
		r.seen.used = true // define resets it
	}
}

// read records the use of a name's value.
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

// statements rewrites a list in place.
func (r *rewriter) statements(stmts []ast.Stmt) []ast.Stmt {
	for i, s := range stmts {
		r.work.steps += effortNode
		r.checkEffort(s)
		stmts[i] = r.statement(s)
	}
	return stmts
}

// checkEffort refuses a script that would take too long to compile.
func (r *rewriter) checkEffort(at ast.PositionHolder) {
	if r.work.steps > r.end {
		refuse(at.Line(), "the script takes too long to compile: too many names, constants or functions")
	}
}

// statement rewrites a statement and adds its allocations to the cost of the current block.
func (r *rewriter) statement(s ast.Stmt) ast.Stmt {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return r.assign(s)
	case *ast.LocalAssignStmt:
		// `local function f` may call itself, `local f = function` may not. The parser
		// returns the same tree for both, and the compiler treats both as the former.
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
		// A backward jump would repeat statements without their charge.
		refuse(s.Line(), "goto is not supported")
	}
	return s
}

// condition rewrites the condition of a loop. Its cost is due before the loop and in each
// iteration.
func (r *rewriter) condition(e *ast.Expr) int {
	before := r.cost
	*e = r.expression(*e)
	return r.cost - before
}

// repeat rewrites a loop whose condition sees the declarations of its body.
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

// define rewrites `function a.b:c() end`: an assignment to a field unless the name is a
// plain one.
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
		field := s.Name.Func.(*ast.AttrGetExpr) // the only other form
		object, key = field.Object, field.Key
	}
	object = r.expression(object)
	r.literal(key)
	return callStmt(line, guardSet, object, key, r.expression(s.Func))
}

package scripting

import (
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// pendingMax bounds the nesting of a source: brackets, blocks and operators whose right
// operand is incomplete. The parser keeps all of it on a stack that it copies to grow,
// and reduces it without interruption.
const pendingMax = 1000

// checkDepth scans the tokens of a source before parsing and refuses one that exceeds
// pendingMax. It overestimates rather than underestimates; malformed tokens are left to
// the parser.
//
// It counts what the parser's stack would hold, by three kinds of tokens:
//
//   - an opening bracket or block stays until it is closed; what was pending outside of it is set
//     aside meanwhile;
//   - an operator that is right-associative or unary (`..`, `^`, not, `#`, a sign) stays until its
//     expression ends, because its operand is incomplete until then;
//   - other operators are reduced at once, and separators end the expression.
//
// Lua has no separator between statements: two operands in a row are the end of one and the
// beginning of another.
func checkDepth(source string) {
	scanner := parse.NewScanner(strings.NewReader(source), "")
	var lexer parse.Lexer
	var outside []int // pending operators around each open bracket or block
	waiting := 0      // pending operators of the current expression
	total := 0        // all pending tokens
	ended := false    // the last token may end an expression
	for {
		token, err := scanner.Scan(&lexer)
		if err != nil || token.Type == parse.EOF {
			return
		}
		lexer.PrevTokenType = token.Type
		opens, closes, waits, ends := false, false, false, false
		switch token.Type {
		case '(', '[', '{', parse.TFunction, parse.TDo, parse.TThen, parse.TRepeat:
			opens = true
		case ')', ']', '}', parse.TEnd:
			closes, ends = true, true
		case parse.TUntil, parse.TElseIf:
			closes = true
		case parse.T2Comma, '^', parse.TNot, '#':
			waits = true
		case '-':
			waits = !ended
		case parse.TIdent, parse.TNumber:
			ends = true
			if ended { // a new statement begins
				total -= waiting
				waiting = 0
			}
		case parse.TString, parse.TNil, parse.TTrue, parse.TFalse, parse.T3Comma:
			ends = true
		case '+', '*', '/', '%', '<', '>', parse.TEqeq, parse.TNeq, parse.TLte, parse.TGte, parse.TAnd, parse.TOr, '.', ':':
		default: // separators of expressions
			total -= waiting
			waiting = 0
		}
		ended = ends
		switch {
		case opens:
			outside = append(outside, waiting)
			waiting = 0
			total++
		case closes && len(outside) > 0:
			total -= waiting + 1
			last := len(outside) - 1
			waiting, outside = outside[last], outside[:last]
		case waits:
			waiting++
			total++
		}
		if total > pendingMax {
			refuse(token.Pos.Line, "nested too deeply, or too many operators in one expression, at most %d", pendingMax)
		}
	}
}

package scripting

import (
	"strings"

	"github.com/yuin/gopher-lua/parse"
)

// pendingMax is how much of a source the parser may have begun and not finished at any
// place: brackets, blocks, and operators that wait for what is on their right. It keeps
// all of it on a stack that it copies to grow, and finishes it in one piece.
const pendingMax = 1000

// shallow goes through a source's tokens and refuses one that goes too deep, before the
// parser sees it. It counts too much rather than too little. What is no token it leaves to
// the parser to say.
func shallow(source string, pace *pacer) {
	scanner := parse.NewScanner(paced{strings.NewReader(source), pace}, "")
	var lexer parse.Lexer
	var outside []int // operators that wait in what is around the brackets and blocks open
	waiting := 0      // operators in the expression at hand
	total := 0        // of all
	ended := false    // the last token may be the last of an expression
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
			if ended { // another statement
				total -= waiting
				waiting = 0
			}
		case parse.TString, parse.TNil, parse.TTrue, parse.TFalse, parse.T3Comma:
			ends = true
		case '+', '*', '/', '%', '<', '>', parse.TEqeq, parse.TNeq, parse.TLte, parse.TGte, parse.TAnd, parse.TOr, '.', ':':
		default: // what separates expressions
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

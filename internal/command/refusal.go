package command

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Error is a refusal with its code on the wire: of syntax, or of a command that
// never reaches the engine.
type Error struct{ Code, Text string }

func (r *Error) Error() string { return r.Text }

// Refuse refuses with a code and a text.
func Refuse(code, text string) error { return &Error{Code: code, Text: text} }

// ClipMax bounds what a refusal repeats of a client's input, as in Redis.
const ClipMax = 128

// Clip returns as much of an argument as a refusal may repeat.
func Clip(b []byte) string { return string(b[:min(len(b), ClipMax)]) }

const wrongArityText = "wrong number of arguments for '"

// WrongArity refuses a command with too few or too many words.
func WrongArity(c *Syntax) error {
	return Refuse("ERR", wrongArityText+c.Name+"' command")
}

// IsWrongArity reports whether an error is a refusal for the number of words.
func IsWrongArity(err error) bool {
	r, ok := errors.AsType[*Error](err)
	return ok && strings.HasPrefix(r.Text, wrongArityText)
}

// Refuse is a syntax error at near. why continues the sentence; empty means that
// near is no word of the command.
func (in *Input) Refuse(near []byte, why string) error {
	if r := in.Cmd.refuse; r != nil {
		if err := r(near, false); err != nil {
			return err
		}
	}
	if !in.Cmd.native {
		return Refuse("ERR", "syntax error")
	}
	text := "syntax error near '" + Clip(near) + "'"
	if why != "" {
		text += ", which " + why
	}
	return Refuse("ERR", text+", usage: "+in.Cmd.UsageLine())
}

func (in *Input) refuseNumber(a *Arg, got []byte) error {
	if r := in.Cmd.refuse; r != nil {
		if err := r(got, true); err != nil {
			return err
		}
	}
	if !in.Cmd.native {
		return Refuse("ERR", "value is not an integer or out of range")
	}
	name := a.Token
	if name == "" {
		name = a.Name
	}
	if a.Type == Double {
		return Refuse("ERR", name+" must be a number, not '"+Clip(got)+"'")
	}
	bounds := " must be an integer"
	if a.Min > math.MinInt64 {
		bounds += " from " + strconv.FormatInt(a.Min, 10)
	}
	if most := in.most(a); most == math.MaxInt64 && a.Min > math.MinInt64 {
		bounds += " up"
	} else if most < math.MaxInt64 {
		bounds += " to " + strconv.FormatInt(most, 10)
	}
	return Refuse("ERR", name+bounds+", not '"+Clip(got)+"'")
}

func (in *Input) refuseCount(slot int, most int64) error {
	v := in.values[slot]
	return Refuse("ERR", in.Cmd.slots[slot]+" is "+strconv.FormatInt(v.num, 10)+" but only "+
		strconv.FormatInt(most, 10)+" arguments follow, usage: "+in.Cmd.UsageLine())
}

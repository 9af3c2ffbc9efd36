package command

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// Error is an error reply with its code on the wire.
type Error struct{ Code, Text string }

func (r *Error) Error() string { return r.Text }

// Refuse returns an error with a code and a text.
func Refuse(code, text string) error { return &Error{Code: code, Text: text} }

// ClipMax bounds the part of a client's input that an error repeats, as in Redis.
const ClipMax = 128

// Clip returns an argument, cut to ClipMax.
func Clip(b []byte) string { return string(b[:min(len(b), ClipMax)]) }

const wrongArityText = "wrong number of arguments for '"

// WrongArity returns the error for a wrong number of arguments.
func WrongArity(c *Syntax) error {
	return Refuse("ERR", wrongArityText+c.Name+"' command")
}

// IsWrongArity reports whether err is a WrongArity.
func IsWrongArity(err error) bool {
	r, ok := errors.AsType[*Error](err)
	return ok && strings.HasPrefix(r.Text, wrongArityText)
}

// Refuse returns a syntax error at near. why completes the sentence; if it is empty, near is not
// expected at all.
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

package client

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"unicode/utf8"
)

// Field is a field of a map.
type Field struct {
	Name  string
	Value any
}

// Map is a map in the order of the wire.
type Map []Field

// Get returns the value of a field, nil if the field is missing.
func (m Map) Get(name string) any {
	for _, f := range m {
		if f.Name == name {
			return f.Value
		}
	}
	return nil
}

// Has says whether the field is there, nil or not.
func (m Map) Has(name string) bool {
	for _, f := range m {
		if f.Name == name {
			return true
		}
	}
	return false
}

// Text returns a field as text, see [Text].
func (m Map) Text(name string) string { return Text(m.Get(name)) }

// Int returns a field as a number, 0 if it is none.
func (m Map) Int(name string) int64 { return Int(m.Get(name)) }

// Float returns a field as a number, 0 if it is none.
func (m Map) Float(name string) float64 { return Float(m.Get(name)) }

// Maps returns the values of a list that are maps.
func Maps(v any) []Map {
	list, _ := v.([]any)
	all := make([]Map, 0, len(list))
	for _, item := range list {
		if m, ok := item.(Map); ok {
			all = append(all, m)
		}
	}
	return all
}

// Texts returns the values of a list as text.
func Texts(v any) []string {
	list, _ := v.([]any)
	all := make([]string, len(list))
	for i, item := range list {
		all[i] = Text(item)
	}
	return all
}

// Text returns a value as text: a string as it is, a number in digits, nil as "", and anything
// else as JSON.
func Text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case bool:
		return strconv.FormatBool(v)
	case RefusalError:
		return v.Error()
	}
	return string(AppendJSON(nil, v))
}

// Int returns a value as a number, 0 if it is none.
func Int(v any) int64 {
	switch v := v.(type) {
	case int64:
		return v
	case float64:
		return int64(v)
	case string:
		n, _ := strconv.ParseInt(v, 10, 64) // 0 if it is none
		return n
	}
	return 0
}

// Float returns a value as a number, 0 if it is none.
func Float(v any) float64 {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	case string:
		n, err := strconv.ParseFloat(v, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return 0
}

// AppendJSON adds a value to b as JSON. A map is an object with its fields in the order of the
// wire, or an array of pairs if a name is not UTF-8 or is there twice; a string that is not UTF-8
// is {"base64": ...}; an error is {"code": ..., "error": ...}; doubles that JSON does not have
// are the texts "inf", "-inf" and "nan".
func AppendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case string:
		if !utf8.ValidString(v) {
			b = appendText(append(b, `{"base64":`...), base64.StdEncoding.EncodeToString([]byte(v)))
			return append(b, '}')
		}
		return appendText(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case float64:
		switch {
		case math.IsInf(v, 1):
			return append(b, `"inf"`...)
		case math.IsInf(v, -1):
			return append(b, `"-inf"`...)
		case math.IsNaN(v):
			return append(b, `"nan"`...)
		}
		return strconv.AppendFloat(b, v, 'g', -1, 64)
	case bool:
		return strconv.AppendBool(b, v)
	case RefusalError:
		b = appendText(append(b, `{"code":`...), v.Code)
		b = appendText(append(b, `,"error":`...), v.Error())
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, item := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = AppendJSON(b, item)
		}
		return append(b, ']')
	case Map:
		return appendMap(b, v)
	}
	return appendText(b, fmt.Sprint(v))
}

func appendMap(b []byte, m Map) []byte {
	if !m.object() {
		pairs := make([]any, len(m))
		for i, f := range m {
			pairs[i] = []any{f.Name, f.Value}
		}
		return AppendJSON(b, pairs)
	}
	b = append(b, '{')
	for i, f := range m {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendText(b, f.Name), ':')
		b = AppendJSON(b, f.Value)
	}
	return append(b, '}')
}

// object says whether the names can be those of a JSON object.
func (m Map) object() bool {
	seen := make(map[string]bool, len(m))
	for _, f := range m {
		if seen[f.Name] || !utf8.ValidString(f.Name) {
			return false
		}
		seen[f.Name] = true
	}
	return true
}

// appendText adds a string of JSON.
func appendText(b []byte, s string) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // people read it
	if err := e.Encode(s); err != nil {
		panic(err) // a string has a JSON, and memory takes it
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte{'\n'})...)
}

// MarshalJSON writes the map as [AppendJSON] does.
func (m Map) MarshalJSON() ([]byte, error) { return AppendJSON(nil, m), nil }

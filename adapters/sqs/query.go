package sqs

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/xml"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
)

// queryProtocol is the older protocol: parameters as in a form, replies in XML. Lists and maps are flat: the
// parameters of the second entry of a list begin with Name.2, those of a map have Name.2.Name and Name.2.Value. The tag
// q of a field is the name of its entries, then those of a map's key and value if they are not Name and Value.
type queryProtocol struct{ form url.Values }

const xmlNamespace = "http://queue.amazonaws.com/doc/2012-11-05/"

func newQueryProtocol(r *fasthttp.RequestCtx, body []byte) (protocol, error) {
	p := &queryProtocol{form: url.Values{}}
	address, err := url.ParseRequestURI(string(r.RequestURI()))
	if err != nil {
		return p, malformed.of("the address is not valid")
	}
	p.form = address.Query()
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return p, malformed.of("the body is no valid form")
	}
	for name, values := range form {
		p.form[name] = append(p.form[name], values...)
	}
	if path := strings.Trim(address.EscapedPath(), "/"); path != "" && !p.form.Has("QueueUrl") {
		p.form.Set("QueueUrl", "/"+path)
	}
	return p, nil
}

func (p *queryProtocol) action() string { return p.form.Get("Action") }

func (p *queryProtocol) decode(into any) error {
	_, err := p.fill(reflect.ValueOf(into).Elem(), "")
	return err
}

// fill sets a value to the parameters with a name, and reports whether there are any.
func (p *queryProtocol) fill(v reflect.Value, name string) (found bool, err error) {
	switch v.Kind() { //nolint:exhaustive // the kinds that the structs of actions have
	case reflect.Struct:
		return p.fillStruct(v, name)
	case reflect.Map:
		return p.fillMap(v, name)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return p.fillList(v, name)
		}
	case reflect.Pointer:
		fresh := reflect.New(v.Type().Elem())
		if found, err = p.fill(fresh.Elem(), name); found {
			v.Set(fresh)
		}
		return found, err
	}
	if !p.form.Has(name) {
		return false, nil
	}
	return true, scalar(v, name, p.form.Get(name))
}

// scalar sets a value to a text.
func scalar(v reflect.Value, name, text string) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return invalidParameter.of("Value %s for parameter %s is invalid. Reason: Must be an integer.", text, name)
		}
		v.SetInt(int64(n))
	default: // bytes
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return invalidParameter.of("Value for parameter %s is invalid. Reason: Must be Base64.", name)
		}
		v.SetBytes(b)
	}
	return nil
}

func (p *queryProtocol) fillStruct(v reflect.Value, name string) (found bool, err error) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		at := name
		if !f.Anonymous {
			entry, _ := tagged(f)
			at = strings.TrimPrefix(name+"."+entry, ".")
		}
		one, err := p.fill(v.Field(i), at)
		if err != nil {
			return false, err
		}
		found = found || one
	}
	return found, nil
}

func (p *queryProtocol) fillList(v reflect.Value, name string) (found bool, err error) {
	for n := 1; ; n++ {
		item := reflect.New(v.Type().Elem()).Elem()
		one, err := p.fill(item, name+"."+strconv.Itoa(n))
		if err != nil || !one {
			return found, err
		}
		v.Set(reflect.Append(v, item))
		found = true
	}
}

// fillMap fills a map, whose parameters are named name.1.key and name.1.value.
func (p *queryProtocol) fillMap(v reflect.Value, name string) (found bool, err error) {
	name, key, value := parts(name)
	for n := 1; ; n++ {
		at := name + "." + strconv.Itoa(n) + "."
		if !p.form.Has(at + key) {
			return found, nil
		}
		item := reflect.New(v.Type().Elem()).Elem()
		if _, err := p.fill(item, at+value); err != nil {
			return found, err
		}
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		v.SetMapIndex(reflect.ValueOf(p.form.Get(at+key)), item)
		found = true
	}
}

// tagged returns the name of a field's entries, and whether it is left out of replies when it is empty.
func tagged(f reflect.StructField) (entry string, omit bool) {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	return cmp.Or(f.Tag.Get("q"), name, f.Name), strings.Contains(options, "omitempty")
}

// parts splits the name of a map from those of its keys and values.
func parts(entry string) (name, key, value string) {
	name, names, has := strings.Cut(entry, ",")
	if !has {
		return name, "Name", "Value"
	}
	key, value, _ = strings.Cut(names, ",")
	return name, key, value
}

func (p *queryProtocol) reply(r *fasthttp.RequestCtx, id string, result any) {
	var b bytes.Buffer
	action := p.action()
	b.WriteString(`<?xml version="1.0"?><` + action + `Response xmlns="` + xmlNamespace + `">`)
	if result != nil {
		b.WriteString("<" + action + "Result>")
		elements(&b, "", reflect.ValueOf(result))
		b.WriteString("</" + action + "Result>")
	}
	b.WriteString("<ResponseMetadata><RequestId>" + id + "</RequestId></ResponseMetadata></" + action + "Response>")
	write(r, "text/xml", id, http.StatusOK, b.Bytes())
}

func (p *queryProtocol) fail(r *fasthttp.RequestCtx, id string, f *fault) {
	var b bytes.Buffer
	b.WriteString(`<?xml version="1.0"?><ErrorResponse xmlns="` + xmlNamespace + `"><Error>`)
	element(&b, "Type", f.kind.side())
	element(&b, "Code", f.kind.code)
	element(&b, "Message", f.message)
	b.WriteString("<Detail/></Error>")
	element(&b, "RequestId", id)
	b.WriteString("</ErrorResponse>")
	write(r, "text/xml", id, f.kind.status, b.Bytes())
}

// elements writes a value as elements of a name.
func elements(b *bytes.Buffer, name string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			elements(b, name, v.Elem())
		}
	case reflect.Struct:
		wrapped(b, name, func() {
			for i := range v.NumField() {
				entry, omit := tagged(v.Type().Field(i))
				if f := v.Field(i); !omit || !f.IsZero() {
					elements(b, entry, f)
				}
			}
		})
	case reflect.Map:
		name, key, value := parts(name)
		names := v.MapKeys()
		slices.SortFunc(names, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range names {
			wrapped(b, name, func() {
				element(b, key, k.String())
				elements(b, value, v.MapIndex(k))
			})
		}
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			element(b, name, base64.StdEncoding.EncodeToString(v.Bytes()))
			return
		}
		for i := range v.Len() {
			elements(b, name, v.Index(i))
		}
	case reflect.Int, reflect.Int64:
		element(b, name, strconv.FormatInt(v.Int(), 10))
	case reflect.Bool:
		element(b, name, strconv.FormatBool(v.Bool()))
	default:
		element(b, name, v.String())
	}
}

func wrapped(b *bytes.Buffer, name string, content func()) {
	if name != "" {
		b.WriteString("<" + name + ">")
	}
	content()
	if name != "" {
		b.WriteString("</" + name + ">")
	}
}

func element(b *bytes.Buffer, name, text string) {
	b.WriteString("<" + name + ">")
	_ = xml.EscapeText(b, []byte(text)) // a buffer takes everything
	b.WriteString("</" + name + ">")
}

package client

import (
	"bufio"
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"testing/iotest"
)

// FuzzReader reads whatever a broker may send: it is a reply or an error, the same however the
// bytes are cut into reads, and its JSON is valid.
func FuzzReader(f *testing.F) {
	for _, text := range []string{
		"+OK\r\n", "-ERR no\r\n", ":1\r\n", "$2\r\nab\r\n", "*2\r\n:1\r\n_\r\n", "%1\r\n+a\r\n,1.5\r\n", "~1\r\n#t\r\n", "=5\r\ntxt:a\r\n",
		">1\r\n+x\r\n", "|1\r\n+a\r\n+b\r\n+c\r\n", "!3\r\nERR\r\n", "(12345678901234567890\r\n", "*1000000000\r\n", "$1000000000\r\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		whole := reader{r: bufio.NewReaderSize(bytes.NewReader(text), 1<<10), bytesMax: 1 << 20}
		cut := reader{r: bufio.NewReaderSize(iotest.OneByteReader(bytes.NewReader(text)), 16), bytesMax: 1 << 20}
		for {
			push, v, err := whole.frame()
			push2, v2, err2 := cut.frame()
			same := reflect.DeepEqual(v, v2) || string(AppendJSON(nil, v)) == string(AppendJSON(nil, v2)) // NaN
			if push != push2 || !same || (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
				t.Fatalf("whole: %t %#v %v; byte by byte: %t %#v %v", push, v, err, push2, v2, err2)
			}
			if err != nil && !Refused(err) {
				return
			}
			if text := AppendJSON(nil, v); !json.Valid(text) {
				t.Fatalf("%#v is no JSON: %s", v, text)
			}
		}
	})
}

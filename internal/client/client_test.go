package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/faisca/fila/internal/testkit"
)

func reading(text string) *reader {
	return &reader{r: bufio.NewReaderSize(iotest.OneByteReader(strings.NewReader(text)), 16), bytesMax: 1 << 20}
}

func TestRepliesAreReadHoweverTheyArrive(t *testing.T) {
	for text, want := range map[string]any{
		"+OK\r\n":                       "OK",
		":-42\r\n":                      int64(-42),
		":9223372036854775807\r\n":      int64(math.MaxInt64),
		",0.5\r\n":                      0.5,
		",inf\r\n":                      math.Inf(1),
		"#t\r\n":                        true,
		"#f\r\n":                        false,
		"_\r\n":                         nil,
		"$-1\r\n":                       nil,
		"*-1\r\n":                       nil,
		"(123456789012345678901\r\n":    "123456789012345678901",
		"$0\r\n\r\n":                    "",
		"$4\r\na\r\nb\r\n":              "a\r\nb",
		"=7\r\ntxt:a=b\r\n":             "a=b",
		"~1\r\n+x\r\n":                  []any{"x"},
		"*2\r\n*1\r\n:1\r\n$1\r\nx\r\n": []any{[]any{int64(1)}, "x"},
		"*1\r\n-ERR no\r\n":             []any{RefusalError{"ERR", "no"}},
		"*1\r\n!6\r\nERR no\r\n":        []any{RefusalError{"ERR", "no"}},
		"%2\r\n+b\r\n:1\r\n+a\r\n_\r\n": Map{{"b", int64(1)}, {"a", nil}},
		"|1\r\n+ttl\r\n:1\r\n+x\r\n":    "x",
		"*0\r\n":                        []any{},
		"%0\r\n":                        Map{},
	} {
		r := reading(text + ":7\r\n")
		if push, got, err := r.frame(); push || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: got %#v, push %t, %v", text, got, push, err)
		}
		if _, next, err := r.frame(); next != int64(7) || err != nil {
			t.Errorf("%q: behind it is %v, %v", text, next, err)
		}
	}
	if push, got, err := reading(">2\r\n+message\r\n+x\r\n").frame(); !push || err != nil || !reflect.DeepEqual(got, []any{"message", "x"}) {
		t.Errorf("a push is %t %v, %v", push, got, err)
	}
	if _, _, err := reading("-NOQUEUE there is none\r\n").frame(); !Refused(err, "NOQUEUE") || Refused(err, "ERR") || err.Error() != "NOQUEUE there is none" {
		t.Errorf("an error reply is %v", err)
	}
}

func TestWhatIsNoReplyIsAnError(t *testing.T) {
	for _, text := range []string{
		"", "\r\n", "+OK\n", "+OK", "$x\r\n", ":\r\n", ":1x\r\n", "#x\r\n", ",x\r\n", "*99999999999999999999\r\n", "*-2\r\n", "$5\r\nabc", "$3\r\nabcde\r\n",
		"*2\r\n:1\r\n", "%1\r\n+a\r\n", "=2\r\nab\r\n", "=4\r\nabcd\r\n", "HTTP/1.1 400 Bad Request\r\n", "$?\r\n", "|1\r\n", "+" + strings.Repeat("x", lineMax),
	} {
		if _, got, err := reading(text).frame(); err == nil || Refused(err) {
			t.Errorf("%.40q was read as %#v, %v", text, got, err)
		}
	}
}

func TestAReplyIsBoundedInDepthAndMemory(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("*1\r\n", n) + ":1\r\n" }
	if _, _, err := reading(deep(depthMax)).frame(); err != nil {
		t.Error(err)
	}
	if _, _, err := reading(deep(depthMax + 1)).frame(); err == nil {
		t.Error("it may be deeper than the bound")
	}
	const most = 1 << 20
	fits := most - (len("$1000000\r\n") + valueBytes)
	text := func(n int) io.Reader {
		return strings.NewReader(fmt.Sprintf("$%d\r\n%s\r\n", n, strings.Repeat("x", n)))
	}
	for n, want := range map[int]bool{fits: true, fits + 1: false} {
		r := &reader{r: bufio.NewReader(text(n)), bytesMax: most}
		if _, _, err := r.frame(); (err == nil) != want || !want && !errors.Is(err, errTooBig) {
			t.Errorf("a string of %d bytes: %v", n, err)
		}
	}
	small := strings.Repeat(":1\r\n", most/valueBytes)
	if _, _, err := reading(fmt.Sprintf("*%d\r\n%s", most/valueBytes, small)).frame(); !errors.Is(err, errTooBig) {
		t.Errorf("an array of small values: %v", err)
	}
}

func TestMemoryGrowsWithWhatHasArrived(t *testing.T) {
	for _, text := range []string{"$1000000000\r\nabc", "*1000000000\r\n:1\r\n", "%1000000000\r\n:1\r\n"} {
		allocated := testkit.Allocations(1, func() {
			r := &reader{r: bufio.NewReader(strings.NewReader(text)), bytesMax: 2 << 30}
			if _, _, err := r.frame(); err == nil {
				t.Errorf("%q was read", text)
			}
		})
		if allocated > 100 {
			t.Errorf("%q: %v allocations", text, allocated)
		}
	}
	r := &reader{r: bufio.NewReader(strings.NewReader("abc"))}
	if b, err := r.bytes(1 << 30); err == nil || cap(b) > chunkBytes {
		t.Errorf("%d bytes of memory, %v", cap(b), err)
	}
}

func TestValuesAsJSON(t *testing.T) {
	for _, x := range []struct {
		value any
		want  string
	}{
		{nil, `null`},
		{"a \"<b>\"\n", `"a \"<b>\"\n"`},
		{"\xff", `{"base64":"/w=="}`},
		{int64(-1), `-1`},
		{0.25, `0.25`},
		{math.Inf(-1), `"-inf"`},
		{math.NaN(), `"nan"`},
		{true, `true`},
		{[]any{int64(1), []any{}}, `[1,[]]`},
		{Map{{"b", int64(1)}, {"a", Map{}}}, `{"b":1,"a":{}}`},
		{Map{{"a", int64(1)}, {"a", int64(2)}}, `[["a",1],["a",2]]`},
		{Map{{"\xff", int64(1)}}, `[[{"base64":"/w=="},1]]`},
		{RefusalError{"ERR", "no"}, `{"code":"ERR","error":"ERR no"}`},
	} {
		if got := string(AppendJSON(nil, x.value)); got != x.want {
			t.Errorf("%#v: %s, want %s", x.value, got, x.want)
		}
	}
}

func TestFieldsOfAMap(t *testing.T) {
	m := Map{{"n", int64(3)}, {"s", "4"}, {"f", 0.5}, {"nil", nil}, {"m", Map{{"a", "b"}}}}
	if m.Int("n") != 3 || m.Int("s") != 4 || m.Int("m") != 0 || m.Float("f") != 0.5 || m.Float("n") != 3 || m.Text("f") != "0.5" || m.Text("m") != `{"a":"b"}` {
		t.Error("wrong values")
	}
	if m.Has("no") || !m.Has("nil") || m.Text("nil") != "" || m.Get("no") != nil {
		t.Error("wrong presence")
	}
}

// broker answers what it reads by answer until the connection ends; an empty answer is none.
func broker(answer func(args []string) string) (client net.Conn) {
	client, server := net.Pipe()
	go func() {
		defer server.Close()
		r := reader{r: bufio.NewReader(server), bytesMax: 1 << 20}
		for {
			_, v, err := r.frame()
			if err != nil {
				return
			}
			args := Texts(v)
			text := "%1\r\n+proto\r\n:3\r\n"
			if args[0] != "HELLO" {
				text = answer(args)
			}
			if text == "close" {
				return
			}
			if _, err := io.WriteString(server, text); err != nil {
				return
			}
		}
	}()
	return client
}

func TestCommandsAndTheirReplies(t *testing.T) {
	var pushes []string
	conn, err := New(t.Context(), broker(func(args []string) string {
		switch args[0] {
		case "PING":
			return ">1\r\n+invalidate\r\n+PONG\r\n"
		case "PSUBSCRIBE":
			return ">1\r\n+early\r\n>3\r\n+psubscribe\r\n+a*\r\n:1\r\n>3\r\n+psubscribe\r\n+b*\r\n:2\r\n>2\r\n+pmessage\r\n+hello\r\n"
		}
		return "-ERR unknown\r\n"
	}), Options{Push: func(p []any) { pushes = append(pushes, Text(p[0])) }})
	if err != nil {
		t.Fatal(err)
	}
	if conn.Hello().Int("proto") != 3 {
		t.Errorf("it says %v", conn.Hello())
	}
	if v, err := conn.Do(t.Context(), "PING"); v != "PONG" || err != nil {
		t.Errorf("%v, %v", v, err)
	}
	if _, err := conn.Do(t.Context(), "NO"); !Refused(err, "ERR") || conn.Err() != nil {
		t.Errorf("%v, %v", err, conn.Err())
	}
	if err := conn.Subscribe(t.Context(), "PSUBSCRIBE", "a*", "b*"); err != nil {
		t.Error(err)
	}
	if push, err := conn.Next(t.Context()); err != nil || !reflect.DeepEqual(push, []any{"pmessage", "hello"}) {
		t.Errorf("%v, %v", push, err)
	}
	if err := conn.Subscribe(t.Context(), "NO", "a"); !Refused(err, "ERR") || conn.Err() != nil {
		t.Errorf("%v, %v", err, conn.Err())
	}
	if strings.Join(pushes, " ") != "invalidate early" {
		t.Errorf("pushes: %q", pushes)
	}
	conn.Close()
	if _, err := conn.Do(t.Context(), "PING"); err == nil || conn.Err() == nil {
		t.Error("it answers although it is closed")
	}
}

func TestAPipelineKeepsTheRefusalsOfItsCommands(t *testing.T) {
	client, server := net.Pipe()
	go func() {
		r := bufio.NewReader(server)
		for n := 0; ; {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if !strings.HasPrefix(line, "*") {
				continue
			}
			if n++; n == 4 { // all commands have come
				go io.WriteString(server, "+1\r\n-ERR no\r\n+3\r\n")
			} else if n == 1 {
				go io.WriteString(server, "%0\r\n")
			}
		}
	}()
	conn, err := New(t.Context(), client, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := conn.Pipeline(t.Context(), []string{"A"}, []string{"B"}, []string{"C"})
	if want := []any{"1", RefusalError{"ERR", "no"}, "3"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
}

func TestADeadlineEndsACommandAndTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := New(t.Context(), broker(func(args []string) string {
			if args[0] == "SILENCE" {
				return ""
			}
			return "+OK\r\n"
		}), Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if _, err := conn.Do(ctx, "PING"); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if _, err := conn.Do(ctx, "SILENCE"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != time.Hour {
			t.Errorf("after %s: %v", time.Since(begin), err)
		}
		if _, err := conn.Do(t.Context(), "PING"); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it goes on with %v", err)
		}
		conn.Close()
	})
}

func TestCancellingEndsACommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := New(t.Context(), broker(func([]string) string { return "" }), Options{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, cancel)
		if _, err := conn.Do(ctx, "SILENCE"); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		conn.Close()
	})
}

func TestAContextThatHasEndedSendsNothing(t *testing.T) {
	conn, err := New(t.Context(), broker(func([]string) string { return "+OK\r\n" }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := conn.Do(ctx, "PING"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if v, err := conn.Do(t.Context(), "PING"); v != "OK" || err != nil {
		t.Errorf("%v, %v", v, err)
	}
}

func TestABrokerThatEndsTheConnection(t *testing.T) {
	conn, err := New(t.Context(), broker(func([]string) string { return "close" }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := conn.Do(t.Context(), "PING"); !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

func TestTheHandshakeSaysWhoConnects(t *testing.T) {
	for _, x := range []struct {
		o    Options
		want string
	}{
		{Options{}, "HELLO 3"},
		{Options{Password: "p"}, "HELLO 3 AUTH default p"},
		{Options{User: "u"}, "HELLO 3 AUTH u "},
		{Options{User: "u", Password: "p", Name: "n"}, "HELLO 3 AUTH u p SETNAME n"},
	} {
		client, server := net.Pipe()
		got := make(chan string, 1)
		go func() {
			r := reader{r: bufio.NewReader(server), bytesMax: 1 << 20}
			_, v, _ := r.frame()
			got <- strings.Join(Texts(v), " ")
			io.WriteString(server, "-WRONGPASS no\r\n")
		}()
		_, err := New(t.Context(), client, x.o)
		if said := <-got; said != x.want || !Refused(err, "WRONGPASS") {
			t.Errorf("%+v sends %q, %v", x.o, said, err)
		}
		if _, err := client.Write(nil); err == nil {
			t.Error("the connection is still open")
		}
	}
}

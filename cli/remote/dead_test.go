package remote

import (
	"testing"

	"github.com/faisca/fila/internal/client"
)

func group(count, first, last int64, id string, queues client.Map) client.Map {
	return client.Map{
		{Name: "error", Value: "timeout after *"}, {Name: "count", Value: count}, {Name: "first_at", Value: first}, {Name: "last_at", Value: last}, {Name: "id", Value: id}, {Name: "queues", Value: queues},
	}
}

func TestTheSameGroupOfTwoPagesIsAddedUp(t *testing.T) {
	a := group(2, 10, 50, "a", client.Map{{Name: "orders", Value: int64(1)}, {Name: "mails", Value: int64(1)}})
	b := group(3, 20, 40, "b", client.Map{{Name: "orders", Value: int64(2)}, {Name: "logs", Value: int64(1)}})
	const want = `{"error":"timeout after *","count":5,"first_at":10,"last_at":50,"id":"a","queues":`
	for _, got := range []client.Map{merged(a, b), merged(b, a)} {
		text := client.Text(got)
		queues, _ := got.Get("queues").(client.Map)
		if len(text) < len(want) || text[:len(want)] != want || len(queues) != 3 || queues.Int("orders") != 3 || queues.Int("mails") != 1 || queues.Int("logs") != 1 {
			t.Errorf("it is %s", text)
		}
	}
	if a.Int("count") != 2 || b.Int("count") != 3 {
		t.Error("the groups of the pages were changed")
	}
}

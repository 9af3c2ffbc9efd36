package remote

import (
	"strings"
	"testing"
	"time"
)

func TestTheDoctorFindsAFullDiskAndAnOldCertificate(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	disk := func(free, size string) *patient {
		return &patient{now: now, info: map[string]string{"store_free_bytes": free, "store_bytes": size}}
	}
	for name, x := range map[string]struct {
		check string
		p     *patient
		want  string // "": nothing is found
	}{
		"much is free":              {"disk", disk("50000000000", "20000000000"), ""},
		"less than 1 GiB is free":   {"disk", disk("900000000", "1000"), "0.8 GiB of the disk are free"},
		"little beside the store":   {"disk", disk("5000000000", "80000000000"), "the store has 74.5 GiB"},
		"the disk is not known":     {"disk", &patient{now: now, info: map[string]string{}}, ""},
		"the certificate ends soon": {"certificate", &patient{now: now, cert: now.Add(3 * 24 * time.Hour)}, "certificate"},
		"the certificate ends late": {"certificate", &patient{now: now, cert: now.Add(90 * 24 * time.Hour)}, ""},
		"there is no certificate":   {"certificate", &patient{now: now}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range checks() {
				if c.name != x.check {
					continue
				}
				found := c.look(x.p)
				if (len(found) == 0) != (x.want == "") || len(found) > 0 && !strings.Contains(found[0].what, x.want) {
					t.Errorf("found %+v, want %q", found, x.want)
				}
				return
			}
			t.Fatalf("there is no check %s", x.check)
		})
	}
}

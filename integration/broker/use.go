package broker

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Use is what a process uses, as Linux tells in /proc.
type Use struct {
	Resident int64 // bytes in memory now
	Peak     int64 // the most bytes it ever had in memory
	Anon     int64 // of Resident, what is no file's
	CPU      time.Duration
}

// UseOf reads what a running process uses. CPU is exact to 10 ms.
func UseOf(pid int) (Use, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return Use{}, err
	}
	var u Use
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		if err != nil {
			continue // not a size
		}
		switch name {
		case "VmRSS":
			u.Resident = kib << 10
		case "VmHWM":
			u.Peak = kib << 10
		case "RssAnon":
			u.Anon = kib << 10
		}
	}
	u.CPU, err = cpu(pid)
	return u, err
}

// cpu is the time of all threads in user and kernel mode. Linux shows it in
// hundredths of a second on every machine.
func cpu(pid int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// The second field is the name in brackets, which may hold anything; utime and
	// stime are the 14th and 15th.
	const utime, stime = 14 - 3, 15 - 3
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= stime {
		return 0, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, i := range []int{utime, stime} {
		n, err := strconv.ParseInt(string(fields[i]), 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond, nil
}

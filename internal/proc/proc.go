// Package proc reads the resource usage of a process from Linux' /proc. On other systems
// it returns an error.
package proc

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Use is the resource usage of a process.
type Use struct {
	Resident int64 // bytes in memory now
	Peak     int64 // maximum of Resident so far
	Anon     int64 // the part of Resident that is not backed by files
	// CPU is the time of all threads, and of terminated, awaited children with a
	// resolution of 10 ms.
	CPU time.Duration
}

// UseOf returns the usage of a running process.
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
	s, err := statOf(pid)
	if err != nil {
		return Use{}, err
	}
	own, err := cpuOf(pid)
	u.CPU = own + s.children
	return u, err
}

// TreeOf sums up the usage of a process and all its living descendants: a server may be
// started by a shell script or fork to write a file. Peaks are added as well, although
// they may not coincide.
func TreeOf(pid int) (Use, error) {
	sum, err := UseOf(pid)
	if err != nil {
		return Use{}, err
	}
	for _, child := range descendants(pid) {
		u, err := UseOf(child)
		if err != nil {
			continue // it has exited; its parent's CPU time includes its own
		}
		sum.Resident += u.Resident
		sum.Peak += u.Peak
		sum.Anon += u.Anon
		sum.CPU += u.CPU
	}
	return sum, nil
}

// descendants returns the children of a process, their children, and so on.
func descendants(pid int) []int {
	children := map[int][]int{}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil // only a bad pattern is an error
	}
	for _, dir := range dirs {
		child, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		if s, err := statOf(child); err == nil {
			children[s.parent] = append(children[s.parent], child)
		}
	}
	all := children[pid]
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// stat is the part of /proc/<pid>/stat that is used.
type stat struct {
	parent   int
	children time.Duration // CPU time of terminated, awaited children
}

// statOf reads times, which Linux reports in hundredths of a second on every machine.
func statOf(pid int) (stat, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	// The second field is the name in parentheses, which may contain any character. Of the fields
	// after it, ppid is the 4th of the line, and cutime and cstime are the 16th and 17th.
	const behind, ppid, cutime, cstime = 3, 4, 16, 17
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) <= cstime-behind {
		return stat{}, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	var s stat
	if s.parent, err = strconv.Atoi(string(fields[ppid-behind])); err != nil {
		return stat{}, err
	}
	for i := cutime; i <= cstime; i++ {
		ticks, err := strconv.ParseInt(string(fields[i-behind]), 10, 64)
		if err != nil {
			return stat{}, err
		}
		s.children += time.Duration(ticks) * 10 * time.Millisecond
	}
	return s, nil
}

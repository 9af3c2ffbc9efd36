package errtext

import "strings"

// What names one of many places: a path, an address, a host. Each begins where no word goes on, and ends with a letter or
// a digit, so that what is left beside its mark is read as it was.

// placeLen returns the length of the path, address or host that begins at s.at, 0 if none does.
func (s *scanner) placeLen() int {
	rest := s.text[s.at:]
	if rest[0] == '/' {
		return s.pathLen(rest)
	}
	before, double := strings.CutSuffix(s.text[:s.at], "::") // what begins with it: the colons stay
	if n := len(before); n > 0 && (joins(before[n-1]) || strings.IndexByte("-._%+@:/", before[n-1]) >= 0) {
		return 0
	}
	if n := numericLen(rest, double); n > 0 || double {
		return n
	}
	if !isPlain(rest[0]) {
		return 0
	}
	if n := driveLen(rest); n > 0 {
		return n
	}
	return s.hostLen(rest)
}

// pathLen returns the length of an absolute path, or of what follows the scheme of a URL: everything up to a space, a
// quote or a bracket, with the numbers of a line and a column.
func (s *scanner) pathLen(rest string) int {
	if s.at > 0 && strings.IndexByte(" \t\n\r([{=<,;:|", s.text[s.at-1]) < 0 {
		return 0
	}
	n := 1
	for n < len(rest) && (isWord(rest[n]) || strings.IndexByte("._-~%+@/?&=!$", rest[n]) >= 0 ||
		rest[n] == ':' && n+1 < len(rest) && isDigit(rest[n+1])) {
		n++
	}
	return endsInWord(rest, n, 2) //nolint:mnd // a slash, and a name
}

// driveLen returns the length of an absolute path of Windows.
func driveLen(rest string) int {
	const begin = 3
	if len(rest) < begin || isDigit(rest[0]) || rest[1] != ':' || rest[2] != '\\' {
		return 0
	}
	n := begin
	for n < len(rest) && (isWord(rest[n]) || strings.IndexByte(`._-~\`, rest[n]) >= 0) {
		n++
	}
	return endsInWord(rest, n, begin+1)
}

// endsInWord returns the length of the beginning of s, at most n, that ends with a letter or a digit; 0 if that is less
// than least.
func endsInWord(s string, n, least int) int {
	for n > 0 && !isWord(s[n-1]) {
		n--
	}
	if n < least {
		return 0
	}
	return n
}

// numericLen returns the length of an address of IPv6, or of hardware: hexadecimal digits, at least one of them
// decimal, with :: or five colons among them or, if double is true, before them.
func numericLen(rest string, double bool) int {
	const most, hardware = 45, 5
	n, colons, digit, points := 0, 0, false, false
	for ; n < len(rest) && (isHex(rest[n]) || rest[n] == ':' || rest[n] == '.'); n++ {
		digit = digit || isDigit(rest[n])
		points = points || rest[n] == '.'
		if rest[n] == ':' {
			colons++
			double = double || n > 0 && rest[n-1] == ':'
		}
	}
	for n > 0 && !isWord(rest[n-1]) {
		n--
	}
	if n > most || n < len(rest) && (joins(rest[n]) || rest[n] == '-' || rest[n] == '_') || !digit || points && !double || !double && colons < hardware {
		return 0
	}
	return n
}

// hostLen returns the length of a host: a name below a domain that is known to be one, after an @ as well, or a name with
// a port behind a word that precedes hosts, as in "dial tcp db:5432".
func (s *scanner) hostLen(rest string) int {
	n := nameLen(rest)
	if n < len(rest) && rest[n] == '@' {
		if host := nameLen(rest[n+1:]); host > 0 && !endsName(rest, n+1+host) {
			return 0
		} else if host > 0 && strings.IndexByte(rest[n+1:n+1+host], '.') >= 0 && isPlain(rest[n+host]) {
			return n + 1 + host
		}
		return 0
	}
	for n > 0 && !isPlain(rest[n-1]) {
		n--
	}
	if n == 0 || !endsName(rest, n) {
		return 0
	}
	name := rest[:n]
	if at := strings.LastIndexByte(name, '.'); at > 0 && isDomain(name[at+1:]) {
		return n
	}
	if n+1 < len(rest) && rest[n] == ':' && isDigit(rest[n+1]) && !isDigit(name[0]) && s.behindPreposition() {
		return n
	}
	return 0
}

// nameLen returns how many of the characters s begins with that the name of a host, or of a mailbox, may have.
func nameLen(s string) int {
	n := 0
	for n < len(s) && (isPlain(s[n]) || n > 0 && strings.IndexByte("-._+", s[n]) >= 0) {
		n++
	}
	return n
}

// endsName reports whether a name may end before s[n].
func endsName(s string, n int) bool {
	if n == len(s) {
		return true
	}
	if strings.IndexByte("-._+", s[n]) >= 0 { // the end of a sentence, or more of a name
		m := n
		for m < len(s) && strings.IndexByte("-._+", s[m]) >= 0 {
			m++
		}
		n = m
	}
	return n == len(s) || !joins(s[n]) && s[n] != '@'
}

// behindPreposition reports whether a word that precedes hosts is before s.at.
func (s *scanner) behindPreposition() bool {
	before, ok := strings.CutSuffix(s.text[:s.at], " ")
	if !ok {
		return false
	}
	const longest = 8
	begin := len(before)
	for begin > 0 && len(before)-begin <= longest && isWord(before[begin-1]) {
		begin--
	}
	if begin > 0 && (joins(before[begin-1])) {
		return false
	}
	switch strings.ToLower(before[begin:]) {
	case "tcp", "udp", "host", "server", "node", "peer", "broker", "to", "from", "on":
		return true
	}
	return false
}

// isDomain reports whether the last part of a dotted name says that it is one of a host: not all domains there are, as
// py, go and so end names of files.
func isDomain(last string) bool {
	switch last {
	case "com", "net", "org", "io", "dev", "app", "cloud", "edu", "gov", "mil", "info", "biz", "eu", "de", "uk", "fr", "ch", "nl", "jp", "cn", "br", "au",
		"internal", "local", "localdomain", "lan", "corp", "home", "intra", "intranet", "private", "svc", "arpa", "test", "example", "invalid", "localhost":
		return true
	}
	return false
}

// suffixLen returns the length of what follows an id in names of pods, as in "web-7f9c4d5b6-x2k9z": a dash and five
// characters, none of which is a vowel.
func suffixLen(rest string) int {
	const length = 6
	if len(rest) < length || rest[0] != '-' || len(rest) > length && (joins(rest[length]) || rest[length] == '-' || rest[length] == '_') {
		return 0
	}
	for i := 1; i < length; i++ {
		if !isDigit(rest[i]) && (rest[i] < 'b' || rest[i] > 'z' || strings.IndexByte("aeiouy", rest[i]) >= 0) {
			return 0
		}
	}
	return length
}

// isPlain reports whether a byte is a letter or a digit of ASCII.
func isPlain(b byte) bool { return b < 0x80 && isWord(b) } //nolint:mnd // ASCII

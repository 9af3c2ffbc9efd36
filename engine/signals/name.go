package signals

import "fmt"

// NameMax is the longest name of a signal, in bytes.
const NameMax = 64

// CheckName returns what is wrong with a subject of at most that many bytes, and a name.
func CheckName(subject, name string, most int) error {
	if subject == "" || len(subject) > most {
		return fmt.Errorf("the subject of a signal has from 1 to %d bytes, this one has %d", most, len(subject))
	}
	for _, b := range []byte(name) {
		letter, digit := b >= 'a' && b <= 'z', b >= '0' && b <= '9'
		if !letter && !digit && b != '_' && b != '-' && b != '.' {
			return fmt.Errorf("the name of a signal consists of a-z 0-9 _ - . only, this is %.80q", name)
		}
	}
	if name == "" || len(name) > NameMax {
		return fmt.Errorf("the name of a signal has from 1 to %d bytes, this one has %d", NameMax, len(name))
	}
	return nil
}

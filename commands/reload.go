package commands

import "slices"

// Reload puts the values of a configuration that was read again in force, as far as they
// can change while the server runs, and names those that were other. It also names those
// of the changed settings that cannot.
func (h *Handler) Reload(settings map[string]string, changed []string) (set, fixed []string) {
	var can []string
	for _, t := range h.tunables() {
		can = append(can, t.own)
		value, known := settings[t.own]
		if !known || value == t.get() {
			continue
		}
		change, err := t.check(value)
		if err != nil { // the configuration was checked, so its values are possible
			fixed = append(fixed, t.own)
			continue
		}
		change()
		set = append(set, t.own)
	}
	for _, name := range changed {
		if !slices.Contains(can, name) {
			fixed = append(fixed, name)
		}
	}
	return set, fixed
}

// ReloadUsers reads auth.acl_file again, where there is one, as ACL LOAD does.
func (h *Handler) ReloadUsers() error {
	if h.cfg.ACLFile == "" {
		return nil
	}
	changed, err := h.users.Load()
	if err != nil {
		return err
	}
	h.changed(changed, nil)
	return nil
}

package commands

import "slices"

// Reload applies the settings of a reloaded configuration. It returns the names of those that
// it has changed, and in fixed the names of changed settings that need a restart.
func (h *Handler) Reload(settings map[string]string, changed []string) (set, fixed []string) {
	var tunable []string
	for _, t := range h.tunables() {
		tunable = append(tunable, t.own)
		value, known := settings[t.own]
		if !known || value == t.get() {
			continue
		}
		change, err := t.check(value)
		if err != nil { // refused while the server runs: it needs a restart
			fixed = append(fixed, t.own)
			continue
		}
		change()
		set = append(set, t.own)
	}
	for _, name := range changed {
		if !slices.Contains(tunable, name) {
			fixed = append(fixed, name)
		}
	}
	return set, fixed
}

// ReloadUsers reloads auth.acl_file as ACL LOAD does. Without such a file it does nothing.
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

package robocache

// Group names a part of a dataset, as GR00T's meta/modality.json does: columns of a numeric stream,
// a camera, or a column of task numbers.
type Group struct {
	Kind string `json:"kind"` // "state", "action", "video" or "annotation"
	Name string `json:"name"` // unique among the groups of its kind
	Key  string `json:"original_key"`
	// Start and End are the columns Start to End-1 of a state or an action. Both are 0 for others.
	Start int `json:"start"`
	End   int `json:"end"`
	// Rotation is the stated type of a rotation, such as "axis_angle". "" is none.
	Rotation string `json:"rotation_type,omitempty"`
	// Absolute reports whether the values are absolute. nil: nothing is stated.
	Absolute *bool `json:"absolute,omitempty"`
}

// Group returns the group of a kind with a name, or nil if there is none.
func (i *Info) Group(kind, name string) *Group {
	for k := range i.Groups {
		if g := &i.Groups[k]; g.Kind == kind && g.Name == name {
			return g
		}
	}
	return nil
}

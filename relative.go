package robocache

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Relative states which channels of a stream are relative: each value is a change over the time of
// its row, as of a delta action. Such channels are summed on another timeline, so that the total
// displacement is kept. In JSON it is true (all channels but a gripper), false (none), or a list of
// channels by number or name.
type Relative struct {
	None     bool     // the stream is absolute
	Channels []int    // by number
	Names    []string // by the name of the channel (Feature.ChannelNames)
}

// UnmarshalJSON reads true, false, or a list of numbers and names.
func (r *Relative) UnmarshalJSON(b []byte) error {
	*r = Relative{}
	var all bool
	if json.Unmarshal(b, &all) == nil && !bytes.Equal(bytes.TrimSpace(b), []byte("null")) {
		r.None = !all
		return nil
	}
	var list []json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil || len(list) == 0 {
		return fmt.Errorf("relative: expected true, false, or a list of channels, found %s", b)
	}
	for _, raw := range list {
		var name string
		var channel int
		switch {
		case json.Unmarshal(raw, &name) == nil:
			r.Names = append(r.Names, name)
		case json.Unmarshal(raw, &channel) == nil:
			r.Channels = append(r.Channels, channel)
		default:
			return fmt.Errorf(
				"relative: expected the number or the name of a channel, found %s",
				raw,
			)
		}
	}
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (r Relative) MarshalJSON() ([]byte, error) {
	if len(r.Channels)+len(r.Names) == 0 {
		return strconv.AppendBool(nil, !r.None), nil
	}
	var list []any
	for _, c := range r.Channels {
		list = append(list, c)
	}
	for _, n := range r.Names {
		list = append(list, n)
	}
	return json.Marshal(list)
}

// Of returns the relative channels of a stream in ascending order. It returns an empty slice for an
// absolute one.
func (r Relative) Of(f *Feature) ([]int, error) {
	if r.None {
		return []int{}, nil
	}
	if len(r.Channels)+len(r.Names) == 0 {
		return f.movingChannels(), nil
	}
	known := f.ChannelNames()
	out := slices.Clone(r.Channels)
	bad := func(want, got string) error {
		return Misuse("align", Where{"stream": f.Key}, "relative channels").Expected(want, got)
	}
	for _, name := range r.Names {
		at := slices.Index(known, name)
		if at < 0 {
			want := "the number of a channel: the stream has no names"
			if known != nil {
				want = "one of " + strings.Join(known, ", ")
			}
			return nil, bad(want, strconv.Quote(name))
		}
		out = append(out, at)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if out[0] < 0 || out[len(out)-1] >= f.Elements() {
		return nil, bad(fmt.Sprintf("channels from 0 to %d", f.Elements()-1), fmt.Sprint(out))
	}
	return out, nil
}

// movingChannels returns all channels but grippers. Of seven channels of an action without names
// the last is the gripper.
func (f *Feature) movingChannels() []int {
	names, n := f.ChannelNames(), f.Elements()
	if names == nil && n == 7 && isAction(f.Key) {
		n = 6
	}
	out := []int{}
	for c := range n {
		if names == nil || !isGripper(nameParts(names[c])) {
			out = append(out, c)
		}
	}
	return out
}

// GripperChannels returns the channels that are grippers, by their names or by the name of the
// stream. Of seven channels of an action without names the last is the gripper.
func (f *Feature) GripperChannels() (out []int) {
	names, n := f.ChannelNames(), f.Elements()
	key := nameParts(f.Key[strings.LastIndexByte(f.Key, '.')+1:])
	for c := range n {
		var parts []string
		if names != nil {
			parts = nameParts(names[c])
		}
		isLast := names == nil && n == 7 && c == 6 && isAction(f.Key)
		named := isGripper(parts) && !slices.Contains(parts, "terminate")
		if isLast || named || n <= 2 && isGripper(key) {
			out = append(out, c)
		}
	}
	return out
}

// RelativeChannels returns the channels of a stream that are relative, and how that is known: as
// the dataset or a mapping states it, else by names. It returns none for a stream with a mode of
// its own (Interpolation, other than slerp for stated channels), and if names leave it open.
func (f *Feature) RelativeChannels() (channels []int, reason string) {
	numeric := f.Kind == KindNumeric && !f.Ragged() && f.DType.Float()
	switch {
	case !numeric || f.Default || f.Latched:
		return nil, ""
	case f.Relative != nil && (f.Interpolation == "" || f.Interpolation == "slerp"):
		return f.Relative, f.RelativeReason
	case f.Interpolation != "" || !isAction(f.Key):
		return nil, ""
	}
	names := f.ChannelNames()
	var named []string
	for c, name := range names {
		if isDelta(nameParts(name)) {
			channels, named = append(channels, c), append(named, name)
		}
	}
	if channels != nil {
		if len(named) > 3 {
			named = append(named[:3], "…")
		}
		return channels, "by the names of its columns: " + strings.Join(named, ", ")
	}
	last := f.Key[strings.LastIndexByte(f.Key, '.')+1:]
	if parts := nameParts(last); !isDelta(parts) && last != "world_vector" {
		return nil, ""
	}
	if names == nil && f.Elements() > 7 {
		return nil, "" // Some of so many channels may be grippers.
	}
	return f.movingChannels(), "by its name"
}

// nameParts splits a name into lower-case words: "deltaPos_x" is delta, pos, x.
func nameParts(name string) []string {
	var b strings.Builder
	var before rune
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			r = ' '
		}
		b.WriteRune(unicode.ToLower(r))
		before = r
	}
	return strings.Fields(b.String())
}

// isAction reports whether a stream is an action by its key.
func isAction(key string) bool {
	parts := nameParts(key)
	return slices.Contains(parts, "action") || slices.Contains(parts, "actions")
}

var (
	deltaWords = []string{
		"rel",
		"relative",
		"dx",
		"dy",
		"dz",
		"droll",
		"dpitch",
		"dyaw",
		"drx",
		"dry",
		"drz",
		"dpos",
		"drot",
		"dqx",
		"dqy",
		"dqz",
		"dqw",
	}
	axisWords = []string{
		"x",
		"y",
		"z",
		"roll",
		"pitch",
		"yaw",
		"rx",
		"ry",
		"rz",
		"pos",
		"rot",
	}
	gripperWords = []string{
		"gripper",
		"grippers",
		"grip",
		"grasp",
		"finger",
		"fingers",
		"jaw",
		"claw",
		"terminate",
	}
	quaternionWords = []string{
		"quat",
		"quaternion",
		"qx",
		"qy",
		"qz",
		"qw",
		"dqx",
		"dqy",
		"dqz",
		"dqw",
	}
)

// isDelta reports whether the words of a name call it a change.
func isDelta(parts []string) bool {
	if slices.Contains(parts, "abs") || slices.Contains(parts, "absolute") {
		return false
	}
	for i, p := range parts {
		if slices.Contains(deltaWords, p) || strings.HasPrefix(p, "delta") ||
			p == "d" && i+1 < len(parts) && slices.Contains(axisWords, parts[i+1]) {
			return true
		}
	}
	return false
}

func isGripper(parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool {
		return slices.Contains(gripperWords, p) || strings.HasPrefix(p, "gripper")
	})
}

// CheckSummable returns an error if some of the channels are a rotation that does not add up, even
// to first order: a quaternion, a matrix or its first two columns.
func (f *Feature) CheckSummable(channels []int) error {
	has := func(at, width int) bool {
		return slices.ContainsFunc(channels, func(c int) bool { return c >= at && c < at+width })
	}
	found := ""
	if slices.ContainsFunc(f.Unsummable, func(c int) bool { return has(c, 1) }) {
		found = "a rotation whose differences are no rotations (a quaternion, a matrix, or six " +
			"numbers of one)"
	}
	for _, r := range f.Rotations {
		if r.Form == FormQuat && has(r.At, 4) {
			found = "a quaternion"
		}
	}
	if f.Interpolation == "slerp" && len(f.Rotations) == 0 {
		found = "quaternions"
	}
	texts := []string{f.Key[strings.LastIndexByte(f.Key, '.')+1:]}
	if names := f.ChannelNames(); names != nil {
		for _, c := range channels {
			texts = append(texts, names[c])
		}
	}
	for _, text := range texts {
		for _, p := range nameParts(text) {
			switch {
			case slices.Contains(quaternionWords, p):
				found = "a quaternion"
			case p == "6d" || p == "rot6d":
				found = "a rotation of six numbers"
			}
		}
	}
	if found == "" || len(channels) == 0 {
		return nil
	}
	asRows := Option("align", "modes", f.Key, "previous")
	chosen := Option("align", "relative", f.Key, []int{0, 1, 2})
	return Unsupported(
		"align",
		Where{"stream": f.Key},
		"mode sum: %s among the relative channels does not add up",
		found,
	).WithHint("Pass %s to take the rows as they are, or %s with the channels that add up.",
		asRows, chosen)
}

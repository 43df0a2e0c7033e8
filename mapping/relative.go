package mapping

import (
	"slices"

	"github.com/goatnote-inc/robocache"
)

// setRelative sets the relative channels of a stream: those that the mapping states, or those of
// its parts at their positions in the joined and sliced row. The names of the channels must be set
// before.
func (d *mappedDataset) setRelative(f *robocache.Feature, m *robocache.StreamMapping) (err error) {
	if f.Relative, f.RelativeReason, err = d.relativeParts(m); err != nil {
		return err
	}
	unsummable := func(s *robocache.Feature) []int { return s.Unsummable }
	if f.Unsummable, err = d.joinedChannels(m, unsummable); err != nil {
		return err
	}
	relative := m.Relative
	if relative == nil && m.Interpolation == "sum" {
		relative = &robocache.Relative{}
	}
	if relative == nil {
		return nil
	}
	if f.Kind != robocache.KindNumeric || !f.DType.Float() || f.Ragged() {
		return robocache.Misuse("map", nil, "relative").
			Expected(
				"numeric rows of one length of floating-point numbers",
				string(f.Kind)+" "+f.DType.String(),
			)
	}
	if f.Interpolation == "sum" {
		f.Interpolation = ""
	}
	f.Relative, err = relative.Of(f)
	f.RelativeReason = "as the mapping states"
	return err
}

// relativeParts returns the relative channels of the parts of a joined row. It returns nil if no
// part states any.
func (d *mappedDataset) relativeParts(
	m *robocache.StreamMapping,
) (channels []int, reason string, err error) {
	channels, err = d.joinedChannels(m, func(f *robocache.Feature) []int {
		own, why := f.RelativeChannels()
		if own != nil && reason == "" {
			reason = why
		}
		return own
	})
	return channels, reason, err
}

// joinedChannels returns the positions of some channels of the parts in the joined and sliced row.
// It returns nil if channelsOf returns nil for all parts.
func (d *mappedDataset) joinedChannels(
	m *robocache.StreamMapping, channelsOf func(*robocache.Feature) []int,
) (channels []int, err error) {
	from, to := 0, int(^uint(0)>>1)
	if m.Slice != nil {
		from, to = m.Slice[0], m.Slice[1]
	}
	at := 0
	for _, key := range m.From {
		f, err := d.sourceFeature(key)
		if err != nil {
			return nil, err
		}
		own := channelsOf(f)
		if own != nil && channels == nil {
			channels = []int{}
		}
		for _, c := range own {
			if c += at; c >= from && c < to {
				channels = append(channels, c-from)
			}
		}
		at += f.Elements()
	}
	slices.Sort(channels)
	return channels, nil
}

package align

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// RelativeNotes returns findings about relative streams. It considers the streams that keys names,
// or all if keys is nil. There is one finding for each of these:
//
//   - a stream that is taken to be relative although the configuration does not name it,
//   - an action that may be relative but is not taken to be,
//   - a relative stream whose totals are lost, because the configuration names a mode other than
//     sum.
func (c *Config) RelativeNotes(info *robocache.Info, keys []string) (out []robocache.Finding) {
	for i := range info.Features {
		f := &info.Features[i]
		if keys != nil && !slices.Contains(keys, f.Key) {
			continue
		}
		_, stated := c.Relative[f.Key]
		mode, chosen := c.Mode(f)
		switch {
		case chosen && mode != Sum && c.isRelative(f) && c.rowsPerTick(info, f) != 1:
			out = append(out, lostTotals(f, mode))
		case chosen || stated:
		case mode == Sum:
			out = append(out, c.relativeNote(f))
		case mode == Linear && mayBeRelative(f):
			out = append(out, robocache.Finding{
				Severity: robocache.SeverityInfo,
				Code:     "maybe-relative",
				Where:    robocache.Where{"stream": f.Key},
				Message: fmt.Sprintf("%s is interpolated as absolute: nothing says whether "+
					"its %d columns are relative (delta actions)", f.Key, f.Elements()),
				Hint: fmt.Sprintf(
					"If they are, pass %s to sum all but a gripper, the last of seven",
					robocache.Option("align", "relative", f.Key, true),
				),
			})
		}
	}
	return out
}

// relativeNote returns the finding that a stream is summed.
func (c *Config) relativeNote(f *robocache.Feature) robocache.Finding {
	_, reason := f.RelativeChannels()
	if reason != "" {
		reason = " (" + reason + ")"
	}
	columns, others := "", ""
	// An error of the channels is reported when the stream is aligned.
	if channels, err := c.Summed(f); err == nil && len(channels) < f.Elements() {
		columns, others = "columns "+channelRuns(channels)+" of ", ", the others are interpolated"
	}
	return robocache.Finding{
		Severity: robocache.SeverityInfo,
		Code:     "relative",
		Where:    robocache.Where{"stream": f.Key},
		Message: fmt.Sprintf("%s is relative%s: %sits rows are summed over the time of each row%s",
			f.Key, reason, columns, others),
		Hint: fmt.Sprintf(
			"Pass %s if it is absolute",
			robocache.Option("align", "relative", f.Key, false),
		),
	}
}

// isRelative reports whether some channels of a stream are relative, or summed by configuration.
func (c *Config) isRelative(f *robocache.Feature) bool {
	if mode, _ := c.Mode(f); mode == Sum {
		return true
	}
	if relative, stated := c.Relative[f.Key]; stated {
		return !relative.None
	}
	channels, _ := f.RelativeChannels()
	return len(channels) > 0
}

// lostTotals returns the finding that mode does not keep the totals of a relative stream.
func lostTotals(f *robocache.Feature, mode Mode) robocache.Finding {
	_, reason := f.RelativeChannels()
	if reason != "" {
		reason = " (" + reason + ")"
	}
	return robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "relative-mode",
		Where:    robocache.Where{"stream": f.Key},
		Message: fmt.Sprintf(
			"%s is relative%s and mode %s does not sum its rows: totals will not be kept",
			f.Key,
			reason,
			mode,
		),
		Hint: fmt.Sprintf("Leave its mode out to sum it, or pass %s if it is absolute",
			robocache.Option("align", "relative", f.Key, false)),
	}
}

// mayBeRelative reports whether a stream has the shape of a delta action (six numbers and a
// gripper) and no names.
func mayBeRelative(f *robocache.Feature) bool {
	last := f.Key[strings.LastIndexByte(f.Key, '.')+1:]
	return f.Relative == nil && f.ChannelNames() == nil && f.Elements() == 7 &&
		(last == "action" || last == "actions")
}

// channelRuns formats ascending channels as ranges: 0–5, 7.
func channelRuns(channels []int) string {
	var parts []string
	for i := 0; i < len(channels); {
		j := i
		for j+1 < len(channels) && channels[j+1] == channels[j]+1 {
			j++
		}
		text := strconv.Itoa(channels[i])
		if j > i {
			text += "–" + strconv.Itoa(channels[j])
		}
		parts = append(parts, text)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

package mapping

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// Suggest writes a mapping that describes a dataset as it is. Comments show what else can be stated
// for each stream. For UMI datasets, which have no action, it adds one. The named parts of states and
// actions (Info.Groups) become streams.
func Suggest(w io.Writer, ds robocache.Dataset) error {
	info := ds.Info()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line(
		"# A mapping of %s (%s). Give it as --map FILE, or map= in Python; docs/mapping.md.",
		oneLine(info.URI),
		info.Format,
	)
	if f, err := robocache.FormatNamed(info.Format); err == nil && !f.Stamped && !info.FPS.Zero() {
		line("# hz: %s            # of the rows, where the format keeps no clock", info.FPS)
		if clocks := info.DescribeUnusedClocks(); clocks != "" {
			line("# %s", oneLine(clocks))
		}
	}
	if info.Clock != "" {
		for i := range info.Features {
			if f := &info.Features[i]; f.Clock == info.Clock {
				line(
					"clock: %s            # the stream whose rows are the episode's own",
					quoteYAML(f.Key),
				)
				break
			}
		}
	}
	if len(info.Tasks) == 0 {
		for i := range info.Features {
			if f := &info.Features[i]; f.Kind == robocache.KindText {
				line("# task: %s          # the text stream that holds the task", quoteYAML(f.Key))
				break
			}
		}
	}
	line("rest: keep            # or drop: streams that are not named here")
	line("streams:")
	named := false
	for i := range info.Features {
		f := &info.Features[i]
		if f.Default {
			continue
		}
		named = true
		line("  %s:", quoteYAML(f.Key))
		line("    from: [%s]            # %s", quoteYAML(f.Key), oneLine(describeFeature(f)))
		if f.Interpolation != "" {
			line("    interpolation: %s", f.Interpolation)
			rotationLine(line, f.Rotations)
		} else if f.Kind == robocache.KindNumeric && f.Elements() == 4 && f.DType.Float() {
			line("    # interpolation: slerp            # if it is a quaternion x, y, z, w")
		}
		if f.Unit != "" {
			line("    unit: %s", quoteYAML(f.Unit))
		}
	}
	groupLines(line, info)
	umiLines(line, info, umiAction(info))
	if !named {
		line("  {}")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// groupModes are the modes of interpolation of groups whose rotation type needs one.
var groupModes = map[string]string{"axis_angle": "rotvec", "quaternion": "slerp"}

// groupLines writes a stream for each named part of a state or an action.
func groupLines(line func(format string, args ...any), info *robocache.Info) {
	for _, g := range info.Groups {
		key := g.Kind + "." + g.Name
		if g.End == g.Start || info.Feature(key) != nil {
			continue
		}
		line("  %s:", quoteYAML(key))
		line("    from: [%s]            # as modality.json names it", quoteYAML(g.Key))
		line("    slice: [%d, %d]", g.Start, g.End)
		if mode := groupModes[g.Rotation]; mode != "" {
			line("    interpolation: %s", mode)
		}
	}
}

func describeFeature(f *robocache.Feature) string {
	text := fmt.Sprintf("%s, %s %v", f.Kind, f.DType, f.Shape)
	if f.Clock != "" {
		text += ", clock " + f.Clock
	}
	if !f.FPS.Zero() {
		text += ", " + f.FPS.String() + " Hz"
	}
	return text
}

// quoteYAML returns a text as a YAML scalar.
func quoteYAML(s string) string {
	if s != "" && strings.IndexFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' || r == '.')
	}) < 0 && !strings.HasPrefix(s, ".") {
		switch strings.ToLower(s) {
		case "y", "n", "yes", "no", "on", "off", "true", "false", "null":
		default:
			return s
		}
	}
	return strconv.QuoteToASCII(s)
}

// oneLine replaces control characters by spaces, so that a comment stays on its line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, s)
}

package mapping

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
)

// umiParts are the suffixes of the streams that form a robot's action in UMI, in order.
var umiParts = []string{"_eef_pos", "_eef_rot_axis_angle", "_gripper_width"}

// umiAction returns the streams that form UMI's action, in order. It returns nil if the dataset has
// an action or is not from UMI.
func umiAction(info *robocache.Info) (keys []string) {
	type robot struct {
		number int
		prefix string
	}
	var robots []robot
	for i := range info.Features {
		key := info.Features[i].Key
		if key == "action" || strings.HasPrefix(key, "action.") {
			return nil
		}
		prefix, ok := strings.CutSuffix(key, umiParts[0])
		if !ok {
			continue
		}
		name := prefix[strings.LastIndexByte(prefix, '.')+1:]
		if digits, ok := strings.CutPrefix(name, "robot"); ok {
			if n, err := strconv.ParseUint(digits, 10, 16); err == nil {
				robots = append(robots, robot{int(n), prefix})
			}
		}
	}
	slices.SortStableFunc(robots, func(a, b robot) int { return cmp.Compare(a.number, b.number) })
	var first *robocache.Feature
	for _, r := range robots {
		for _, part := range umiParts {
			f := info.Feature(r.prefix + part)
			if f == nil || f.Kind != robocache.KindNumeric || f.Ragged() {
				return nil
			}
			if first == nil {
				first = f
			}
			// Over would reject the combination
			if f.DType != first.DType || f.Clock != first.Clock {
				return nil
			}
			keys = append(keys, f.Key)
		}
	}
	return keys
}

// umiLines writes the action as a stream of the mapping.
func umiLines(line func(format string, args ...any), info *robocache.Info, keys []string) {
	if len(keys) == 0 {
		return
	}
	from := make([]string, len(keys))
	var turns []robocache.Rotation
	at := 0
	for i, k := range keys {
		from[i] = quoteYAML(k)
		f := info.Feature(k)
		if strings.HasSuffix(k, umiParts[1]) && f.DType.Float() {
			for _, r := range robocache.RepeatRotation(robocache.FormRotVec, f.Elements()) {
				turns = append(turns, robocache.Rotation{At: at + r.At, Form: r.Form})
			}
		}
		at += f.Elements()
	}
	line(
		"  action:            # UMI keeps none: position, rotation, width of %s",
		robotsOf(len(keys)/len(umiParts)),
	)
	line("    from: [%s]", strings.Join(from, ", "))
	if turns != nil {
		line(
			"    interpolation: slerp            # of the rotation vectors; position and width " +
				"are linear",
		)
		rotationLine(line, turns)
	}
}

func robotsOf(n int) string {
	if n == 1 {
		return "the robot"
	}
	return fmt.Sprintf("each of %d robots", n)
}

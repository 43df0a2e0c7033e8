package zarr

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/origin"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
)

// view is a feature that is stored in an array.
type view struct {
	f     *robocache.Feature
	a     *Array
	round bool   // pixels are stored as floats
	valid *Array // mask of the rows that have a value; nil means all
}

const maxEnds = 64 << 20

// readEnds reads meta/episode_ends.
func (d *Dataset) readEnds(ctx context.Context, a *Array) error {
	if len(a.Shape) != 1 || a.Type.Kind != 'i' && a.Type.Kind != 'u' {
		return bad("episode_ends is %s %v, not a list of integers", a.Type, a.Shape)
	}
	n := a.Shape[0]
	if n > maxEnds/8 {
		return tooMany("%d episodes", n)
	}
	b := make([]byte, n*a.Type.Size)
	if err := d.gatherRows(ctx, a, reader.Episodes(nil, n), b); err != nil {
		return err
	}
	d.ends = append(make([]int64, 0, n+1), 0)
	for i, v := range robocache.Int64s(nil, a.Type.DType(), b) {
		switch last := d.ends[i]; {
		case v < last: // also true for an unsigned value above 2^63
			return bad("end %d is %d, after %d: ends must not decrease", i, v, last)
		case v-last > 1<<31:
			return tooMany("episode %d has %d rows", i, v-last)
		}
		d.ends = append(d.ends, v)
	}
	d.About.Episodes, d.About.Frames = n, d.ends[n]
	return nil
}

func tooMany(format string, args ...any) error {
	return robocache.ResourceLimit("zarr open", nil, format, args...)
}

// describeBuffer describes the streams of a replay buffer: the arrays below data/.
func (d *Dataset) describeBuffer(ctx context.Context, images string) error {
	total := d.ends[len(d.ends)-1]
	d.nameSkippedArrays(func(p string) string {
		name, ok := strings.CutPrefix(p, "data/")
		if !ok {
			return ""
		}
		return bufferKey(name, &Array{})
	})
	masks := map[string]*Array{}
	for _, p := range d.sortedPaths() {
		name, ok := strings.CutPrefix(p, "data/")
		if !ok {
			continue
		}
		a := d.arrays[p]
		if len(a.Shape) == 0 {
			d.reportScalar(p)
			continue
		}
		if of, ok := a.Attrs["robocache_mask_of"].(string); ok && a.Type.Kind == 'b' &&
			len(a.Shape) == 1 {
			masks[of] = a
			continue
		}
		if int64(a.Shape[0]) < total {
			d.addFinding(
				robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "short-stream",
					Where:    robocache.Where{"stream": p},
					Message: fmt.Sprintf(
						"%d rows; the last episode ends at %d",
						a.Shape[0],
						total,
					),
					Hint: "write the missing rows, or take the last episodes off meta/episode_ends",
				},
			)
		}
		if err := d.describeArray(ctx, a, bufferKey(name, a), "", images); err != nil {
			return err
		}
	}
	for i := range d.About.Features {
		f := &d.About.Features[i]
		if m := masks[f.Key]; m != nil && m.Shape[0] >= d.views[f.Key].a.Shape[0] {
			f.Masked, d.views[f.Key].valid = true, m
		}
	}
	d.linkViews()
	if err := d.readTasks(ctx); err != nil {
		return err
	}
	for _, key := range []string{"task", "language_instruction", "language"} {
		if v := d.views[key]; v != nil && v.f.Kind == robocache.KindText && d.taskKey == "" {
			d.taskKey = key
		}
	}
	return nil
}

// readTasks reads the tasks that our writer stores next to the ends of the episodes.
func (d *Dataset) readTasks(ctx context.Context) error {
	a := d.arrays[taskArray]
	if a == nil || !a.Text || len(a.Shape) != 1 || a.Shape[0] != d.About.Episodes {
		return nil
	}
	d.tasks = make([]string, a.Shape[0])
	if err := d.tree.readTexts(ctx, a, reader.Episodes(nil, a.Shape[0]), d.tasks); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, t := range d.tasks {
		if t != "" && !seen[t] {
			seen[t] = true
			d.About.Tasks = append(
				d.About.Tasks,
				robocache.Task{Index: int64(len(d.About.Tasks)), Text: t},
			)
		}
	}
	return nil
}

// Origin returns the recording from which an episode was made, as stored by our writer, or nil.
func (d *Dataset) Origin(ctx context.Context, episode int) (_ *robocache.Origin, err error) {
	defer crash.Recover("zarr", &err)
	a := d.arrays[sourceArray]
	if a == nil || !a.Text || len(a.Shape) != 1 || a.Shape[0] != d.About.Episodes || episode < 0 ||
		episode >= a.Shape[0] {
		return nil, nil
	}
	text := make([]string, 1)
	if err := d.tree.readTexts(ctx, a, []int{episode}, text); err != nil {
		return nil, err
	}
	return origin.Parse(text[0]), nil
}

// bufferKey returns the key of a stream. Arrays of our writer contain their key. Otherwise actions
// and clocks keep their names, and all other arrays become observations.
func bufferKey(name string, a *Array) string {
	if k, ok := a.Attrs["robocache_key"].(string); ok && k != "" && len(k) < 256 {
		return k
	}
	name = strings.ReplaceAll(name, "/", ".")
	switch {
	case name == "action" || name == "actions":
		return "action"
	case name == "timestamp", name == "task", name == "language_instruction", name == "language",
		strings.HasPrefix(name, "action."):
		return name
	}
	return "observation." + name
}

// skippedSeverity returns the severity of a finding for an array that is not read.
func skippedSeverity(key string) robocache.Severity {
	if robocache.Vital("", key) {
		return robocache.SeverityError
	}
	return robocache.SeverityWarning
}

// nameSkippedArrays sets the stream keys in the findings of arrays whose metadata was not
// supported.
func (d *Dataset) nameSkippedArrays(key func(path string) string) {
	for i := range d.About.Findings {
		if f := &d.About.Findings[i]; f.Code == "array-skipped" && f.NotDelivered != "" {
			f.NotDelivered = key(f.NotDelivered)
			f.Severity = skippedSeverity(f.NotDelivered)
		}
	}
}

// describeGeneric describes the streams of a store without a known layout. Every array is a stream
// named by its path.
func (d *Dataset) describeGeneric(ctx context.Context, images string) error {
	// The episode has the most common number of rows. Arrays of another length have their own
	// clock.
	count := map[int]int{}
	anchor := -1
	for _, p := range d.sortedPaths() {
		if a := d.arrays[p]; len(a.Shape) > 0 {
			count[a.Shape[0]]++
		}
	}
	for n, c := range count {
		if anchor < 0 || c > count[anchor] || c == count[anchor] && n > anchor {
			anchor = n
		}
	}
	if anchor < 0 {
		return robocache.Unsupported("zarr open", nil, "no array has rows")
	}
	if anchor > 1<<31 {
		return tooMany("an episode of %d rows", anchor)
	}
	d.nameSkippedArrays(func(p string) string { return strings.ReplaceAll(p, "/", ".") })
	d.ends = []int64{0, int64(anchor)}
	d.About.Episodes, d.About.Frames = 1, int64(anchor)
	for _, p := range d.sortedPaths() {
		a := d.arrays[p]
		if len(a.Shape) == 0 {
			d.reportScalar(p)
			continue
		}
		clock := ""
		if a.Shape[0] > 1<<31 {
			return tooMany("%q has %d rows", p, a.Shape[0])
		}
		if a.Shape[0] != anchor {
			clock = fmt.Sprintf("rows%d", a.Shape[0])
		}
		if err := d.describeArray(ctx, a, cmp.Or(strings.ReplaceAll(p, "/", "."), "values"), clock,
			images); err != nil {
			return err
		}
	}
	d.linkViews()
	return nil
}

// linkViews sets the pointers from views to features, after the list of features is complete.
func (d *Dataset) linkViews() {
	for i := range d.About.Features {
		f := &d.About.Features[i]
		if v := d.views[f.Key]; v != nil {
			v.f = f
		}
	}
	d.cameras.linkFeatures(d.About)
}

// describeArray adds an array as a stream.
func (d *Dataset) describeArray(ctx context.Context, a *Array, key, clock, images string) error {
	if d.views[key] != nil {
		d.addFinding(
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "key-twice",
				Where:    robocache.Where{"stream": a.Path},
				Message:  "another array has the key " + key + " already; this one is left out",
			},
		)
		return nil
	}
	f := robocache.Feature{
		Key:     key,
		Kind:    robocache.KindNumeric,
		DType:   a.Type.DType(),
		Clock:   clock,
		FPS:     d.rate,
		Shape:   slices.Clone(a.Shape[1:]),
		Default: key == "timestamp",
	}
	v := &view{a: a}
	n := len(a.Shape)
	switch {
	case a.Text || f.DType == robocache.InvalidDType:
		if n != 1 && !(n == 2 && a.Shape[1] == 1) {
			why := fmt.Sprintf("texts of shape %v are not read: a text a row is", a.Shape)
			if a.Text {
				why = fmt.Sprintf(
					"an array of Python objects (dtype object) of shape %v is not read: a text "+
						"a row is",
					a.Shape,
				)
			}
			d.addFinding(
				robocache.Finding{
					Severity:     skippedSeverity(key),
					Code:         "array-skipped",
					Where:        robocache.Where{"file": a.Path},
					Message:      why,
					Hint:         "store numbers under a dtype of numbers",
					NotDelivered: key,
				},
			)
			return nil
		}
		f.Kind, f.DType, f.Shape = robocache.KindText, robocache.String, []int{1}
	case n == 1:
		f.Shape = []int{1}
	case n == 4 && a.Shape[1] > 0 && a.Shape[2] > 0 &&
		(a.Shape[3] == 3 || a.Shape[3] == 1) && f.DType == robocache.Uint8:
		setImage(&f, a.Shape[3])
	case (n == 3 || n == 4 && a.Shape[3] == 1) && a.Shape[1] > 0 && a.Shape[2] > 0 &&
		depthName(a.Path) && (f.DType == robocache.Float32 || f.DType == robocache.Uint16):
		setImage(&f, 1)
	case n == 4 && a.Shape[3] == 3 && a.Shape[1] > 7 && a.Shape[2] > 7 &&
		f.DType.Float() && images == "auto":
		pixels, err := d.holdsPixels(ctx, a)
		if err != nil {
			return err
		}
		if pixels {
			v.round = true
			f.DType = robocache.Uint8
			setImage(&f, 3)
			d.addFinding(
				robocache.Finding{
					Severity: robocache.SeverityInfo,
					Code:     "float-images",
					Where:    robocache.Where{"stream": key},
					Message: fmt.Sprintf(
						"images kept as %s from 0 to 255 are given as uint8, rounded",
						a.Type,
					),
					Hint: robocache.Option("options", "images", "raw") + " gives the numbers",
				},
			)
		}
	}
	if turns := umiRotations(a.Path, &f); turns != nil {
		f.Interpolation, f.Rotations = "slerp", turns
	}
	if m, ok := a.Attrs["robocache_feature"].(map[string]any); ok {
		restoreFeature(&f, m)
	}
	f.StateDepth()
	if a.err != nil {
		d.addFinding(
			robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "codec-unsupported",
				Where:    robocache.Where{"stream": key},
				Message:  a.err.Error(),
			},
		)
	}
	d.views[key] = v
	if key == "task" && f.Kind == robocache.KindText {
		v.f = &f // the pseudo-feature "task", which is not a separate stream
		return nil
	}
	d.About.Features = append(d.About.Features, f)
	return nil
}

func setImage(f *robocache.Feature, channels int) {
	f.Kind = robocache.KindImage
	f.Height, f.Width, f.Channels = f.Shape[0], f.Shape[1], channels
	f.Shape = []int{f.Height, f.Width, channels}
}

// restoreFeature applies the properties of a feature that our writer stored.
//
// A numeric stream with the shape of images stays numeric if the properties say so. In the same
// way, numbers become depth images.
func restoreFeature(f *robocache.Feature, m map[string]any) {
	switch kind, _ := m["kind"].(string); {
	case kind == string(robocache.KindEvent) && f.Kind == robocache.KindText:
		f.Kind, f.DType = robocache.KindEvent, robocache.JSON
	case kind == string(robocache.KindNumeric) && f.Kind == robocache.KindImage:
		f.Kind, f.Height, f.Width, f.Channels = robocache.KindNumeric, 0, 0, 0
	case kind == string(robocache.KindImage) && f.Kind == robocache.KindNumeric &&
		len(f.Shape) == 3 && f.Shape[0] > 0 && f.Shape[1] > 0 && f.Shape[2] == 1 &&
		(f.DType == robocache.Uint16 || f.DType == robocache.Float32):
		setImage(f, 1)
	}
	if s, ok := m["interpolation"].(string); ok {
		f.Interpolation = s
	}
	if v, ok := m["rotations"]; ok {
		f.Rotations = nil
		var r []robocache.Rotation
		b, err := json.Marshal(v)
		if err == nil && json.Unmarshal(b, &r) == nil &&
			robocache.CheckRotations(r, f.Elements()) == nil {
			f.Rotations = r
		}
	}
	if v, ok := m["relative"].([]any); ok {
		var relative robocache.Relative
		relative.None = len(v) == 0
		b, err := json.Marshal(v)
		if err == nil && (relative.None || relative.UnmarshalJSON(b) == nil) {
			if channels, err := relative.Of(f); err == nil {
				f.Relative, f.RelativeReason = channels, "as the array's attributes state"
			}
		}
	}
	if v, ok := m["unsummable"]; ok {
		f.Unsummable = nil
		var channels []int
		if b, err := json.Marshal(v); err == nil && json.Unmarshal(b, &channels) == nil {
			f.Unsummable = channels
		}
	}
	if s, ok := m["unit"].(string); ok {
		f.Unit = s
	}
	if s, ok := m["names"].(string); ok {
		f.Names = []byte(s)
	}
	if s, ok := m["scalar"].(bool); ok && s && f.Kind == robocache.KindNumeric {
		f.Shape = []int{}
	}
}

// umiRotations returns the rotations of UMI's arrays: rotation vectors, alone or after a position.
func umiRotations(path string, f *robocache.Feature) []robocache.Rotation {
	if f.Kind != robocache.KindNumeric || !f.DType.Float() || len(f.Shape) != 1 {
		return nil
	}
	switch {
	case strings.HasSuffix(path, "rot_axis_angle"):
		return robocache.RepeatRotation(robocache.FormRotVec, f.Elements())
	case f.Elements() == 6 &&
		(strings.HasSuffix(path, "_demo_start_pose") || strings.HasSuffix(path, "_demo_end_pose")):
		return []robocache.Rotation{{At: 3, Form: robocache.FormRotVec}}
	}
	return nil
}

func depthName(p string) bool { return strings.Contains(strings.ToLower(p), "depth") }

// maxPixelRows is the number of rows that are read to tell pixels from other numbers.
const maxPixelRows = 16

// holdsPixels reports whether an array of numbers contains pixels from 0 to 255. It decides by the
// first row that has values above 1 and none outside the range. Rows with only 0 and 1 do not
// decide, because they may be black images. The rows that are read are spread over all episodes.
func (d *Dataset) holdsPixels(ctx context.Context, a *Array) (_ bool, err error) {
	if a.Shape[0] == 0 || a.err != nil || a.rowBytes > 64<<20 {
		return false, nil
	}
	defer robocache.LocateIn(&err, "stream", a.Path)
	b := make([]byte, a.rowBytes)
	n := min(a.Shape[0], maxPixelRows)
	for k := range n {
		if err := d.gatherRows(ctx, a, []int{k * a.Shape[0] / n}, b); err != nil {
			return false, err
		}
		top, isWhole := 0.0, true
		for _, v := range robocache.Float64s(nil, a.Type.DType(), b) {
			if !(v >= 0 && v <= 255) {
				return false, nil
			}
			top, isWhole = max(top, v), isWhole && v == math.Trunc(v)
		}
		if top > 1 {
			return true, nil
		}
		if !isWhole {
			return false, nil
		}
	}
	return false, nil
}

// reportScalar adds the finding that an array without dimensions is left out.
func (d *Dataset) reportScalar(path string) {
	d.addFinding(
		robocache.Finding{
			Severity: robocache.SeverityInfo,
			Code:     "array-skipped",
			Where:    robocache.Where{"file": path},
			Message:  "a single value, no stream",
		},
	)
}

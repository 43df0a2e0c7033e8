package lerobot

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
)

// source is where the values of a feature are stored.
type source uint8

const (
	fromColumn source = iota // a column of the data files
	computed                 // computed, because the files lack the column
	fromVideo
	fromLanguage // computed from the language column
)

// column holds what reads need to know about one feature.
type column struct {
	key      string
	number   int32 // position in Info.Features, and column number of its cache units
	source   source
	kind     robocache.Kind
	dtype    robocache.DType
	shape    []int
	rowBytes int
}

// isDefault reports whether key is that of a bookkeeping column.
func isDefault(key string) bool {
	return slices.ContainsFunc(
		write.Bookkeeping,
		func(f robocache.Feature) bool { return f.Key == key },
	)
}

// describeFeatures builds the list of features: declared ones with data, the bookkeeping columns,
// and columns that are not declared.
func (d *Dataset) describeFeatures(ctx context.Context) error {
	schema, err := d.firstSchema(ctx)
	if err != nil {
		return err
	}
	for i := range d.raw.features {
		r := &d.raw.features[i]
		f, err := parseFeature(r)
		if err != nil {
			d.dropFeature(&f, err.Error(), "declare one of the format's types")
			continue
		}
		reportMissing := func(reason string) {
			d.dropFeature(
				&f,
				"feature "+f.Key+" is declared, but "+reason,
				"remove it from info.json, or fetch what is missing",
			)
		}
		switch {
		case f.Kind == robocache.KindVideo:
			hasFiles, err := d.openCamera(ctx, &f)
			if err != nil {
				return err
			}
			if hasFiles {
				d.addFeature(f, fromVideo)
			} else {
				reportMissing("it has no video file")
			}
		case schema != nil && schema.Column(r.key) == nil && f.Default:
			d.addFeature(f, computed)
		case schema != nil && schema.Column(r.key) == nil:
			reportMissing("the data has no column of that name")
		default:
			if err := checkShape(schema, &f, r.key); err != nil {
				return err
			}
			d.addFeature(f, fromColumn)
		}
	}
	if schema != nil {
		for _, top := range schema.Root.Children {
			if _, ok := d.byKey[top.Name]; !ok && d.raw.declaration(top.Name) == nil {
				d.addUndeclared(top)
			}
		}
	}
	for _, f := range write.Bookkeeping {
		_, isStored := d.byKey[f.Key]
		// derive computes task_index only if the dataset has exactly one task.
		isUnknown := f.Key == "task_index" && len(d.About.Tasks) != 1
		if isStored || isUnknown {
			continue
		}
		f.Shape = []int{1}
		d.addFeature(f, computed)
	}
	d.describeLanguage()
	return nil
}

// checkShape returns an error if the data cannot have rows of the declared shape. It is called
// before memory is allocated according to the shape. A smaller error is found when the feature is
// read, so the other features can still be read.
func checkShape(schema *pq.File, f *robocache.Feature, key string) error {
	const alwaysAllowed = 1 << 16
	longest, ok := longestRow(schema, key)
	isTooLarge := ok && int64(f.Elements()) > max(longest, alwaysAllowed)
	if f.Kind != robocache.KindNumeric || !isTooLarge {
		return nil
	}
	return infoError(
		robocache.ErrMalformed,
		"/features/"+escapePointer(key)+"/shape",
		fmt.Sprintf(
			"the shape %v is too large: rows of the data have at most %d values",
			f.Shape,
			longest,
		),
	)
}

// longestRow returns the largest possible number of values in a row of a column, from the footer of
// a file with rows. ok is false if the footer does not state it.
func longestRow(schema *pq.File, key string) (n int64, ok bool) {
	if schema == nil {
		return 0, false
	}
	leaf := schema.Column(key).OnlyLeaf()
	if leaf == nil {
		return 0, false
	}
	for g := range schema.Groups {
		if c, exists := schema.Chunk(g, leaf); exists && schema.Groups[g].Rows > 0 {
			n = max(n, c.Values)
			ok = true
		}
	}
	return n, ok
}

// declaration returns the declaration of a feature in info.json, or nil.
func (f *infoFile) declaration(key string) *declared {
	if i := slices.IndexFunc(f.features, func(d declared) bool { return d.key == key }); i >= 0 {
		return &f.features[i]
	}
	return nil
}

// dropFeature adds the finding that a feature is left out.
func (d *Dataset) dropFeature(f *robocache.Feature, reason, hint string) {
	severity := robocache.SeverityWarning
	if robocache.Vital(f.Kind, f.Key) {
		severity = robocache.SeverityError
	}
	d.addFinding(robocache.Finding{
		Severity: severity,
		Code:     "feature-dropped",
		Where: robocache.Where{
			"file":    infoPath,
			"pointer": "/features/" + escapePointer(f.Key),
		},
		Message:      reason + ": it is left out",
		Hint:         hint,
		NotDelivered: f.Key,
		Class:        "malformed",
	})
}

// addFeature appends a feature and its column.
func (d *Dataset) addFeature(f robocache.Feature, src source) {
	n := len(d.About.Features)
	d.About.Features = append(d.About.Features, f)
	d.columns = append(d.columns, column{
		key:      f.Key,
		number:   int32(n),
		source:   src,
		kind:     f.Kind,
		dtype:    f.DType,
		shape:    f.Shape,
		rowBytes: f.RowBytes(),
	})
	d.byKey[f.Key] = n
}

// addUndeclared adds a column that info.json does not name, if its type is a plain one.
func (d *Dataset) addUndeclared(top *pq.Node) {
	finding := robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "undeclared-column",
		Where:    robocache.Where{"file": infoPath, "column": top.Name},
		Message:  "the data has a column that info.json does not declare: " + top.Name,
		Hint:     "declare it, or remove the column: LeRobot does not open such a dataset",
	}
	f := robocache.Feature{
		Key:     top.Name,
		Kind:    robocache.KindNumeric,
		Shape:   []int{1},
		Default: isDefault(top.Name),
	}
	if !top.Group() && top.MaxRep == 0 {
		f.DType = pq.DType(top)
	}
	if f.DType == robocache.String {
		f.Kind = robocache.KindText
	}
	if f.DType == robocache.InvalidDType {
		finding.Message += "; its shape is unknown, so it is left out"
		finding.NotDelivered = top.Name
	} else {
		d.addFeature(f, fromColumn)
	}
	d.addFinding(finding)
}

// firstSchema returns the footer of the first data file that can be opened, or nil for a dataset
// without episodes. A missing file is not an error, because others may exist.
func (d *Dataset) firstSchema(ctx context.Context) (*pq.File, error) {
	n := d.tables.fileCount()
	if n == 0 {
		return nil, nil
	}
	best := d.paths.data
	found := 0
	if !d.isTemplateProven(n) {
		var err error
		if best, _, found, err = d.probeTemplates(ctx, d.paths.data, n, d.dataPlace); err != nil {
			return nil, err
		}
	}
	if found > 0 && d.raw.dataPath != "" && best[0] != d.raw.dataPath {
		d.reportTemplate(
			"/data_path",
			"",
			fmt.Sprintf("data_path %q does not name the files; %q does", d.raw.dataPath, best[0]),
			"write the template that fits",
		)
	}
	d.paths.data = best
	var firstErr error
	probes := slices.Compact([]int{0, n / 2, n - 1})
	if !robocache.IsRemote(d.Bytes) { // possibly only the files of some episodes exist here
		for i := range n {
			probes = append(probes, i)
		}
	}
	for _, i := range probes {
		f, err := d.tables.footer(ctx, int32(i))
		if err == nil {
			return f.pq, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		firstErr = cmp.Or(firstErr, err)
		// Only these errors concern the one file. After any other, the next file fails as well.
		if !errors.Is(err, robocache.ErrNotFound) && !errors.Is(err, robocache.ErrMalformed) {
			break
		}
	}
	return nil, firstErr
}

// isTemplateProven reports whether the first, middle and last of n data files were opened under the
// names that the first template gives them.
func (d *Dataset) isTemplateProven(n int) bool {
	for _, i := range []int{0, n / 2, n - 1} {
		v, ok := d.tables.cache.Peek(unitKey{file: int32(i), col: unitFooter})
		if !ok {
			return false
		}
		name, err := expandTemplate(d.paths.data[0], d.dataPlace(int32(i)))
		if err != nil || name != v.(*tableFile).name {
			return false
		}
	}
	return true
}

// probeTemplates returns the templates with the best one first: the one that names the most of
// three probed files (the first, the middle and the last of n). found is the count of the best one.
func (d *Dataset) probeTemplates(
	ctx context.Context,
	templates []string,
	n int,
	placeOf func(i int32) place,
) (best []string, probes []place, found int, err error) {
	for _, i := range slices.Compact([]int{0, n / 2, n - 1}) {
		probes = append(probes, placeOf(int32(i)))
	}
	if best, found, err = d.paths.chooseTemplate(ctx, templates, probes); err != nil {
		return best, probes, found, err
	}
	return best, probes, found, nil
}

// reportTemplate adds the finding that a path template of info.json does not name the files.
func (d *Dataset) reportTemplate(pointer, stream, msg, hint string) {
	f := warningAt("path-template", infoPath, msg, hint)
	f.Where["pointer"] = pointer
	if stream != "" {
		f.Where["stream"] = stream
	}
	d.addFinding(f)
}

// parseFeature converts a declaration to a Feature.
func parseFeature(r *declared) (robocache.Feature, error) {
	f := robocache.Feature{Key: r.key, Shape: r.shape, Default: isDefault(r.key)}
	if len(r.Names) > 0 && string(r.Names) != "null" {
		f.Names = r.Names
	}
	if len(r.FPS) > 0 {
		if rate, err := robocache.RateOf(strings.Trim(string(r.FPS), `"`)); err == nil {
			f.FPS = rate
		}
	}
	alias := map[string]string{
		"float": "float32", "double": "float64", "int": "int64", "boolean": "bool", "str": "string",
	}
	dtypeName := cmp.Or(alias[r.DType], r.DType)
	switch dtypeName {
	case "video", "image":
		f.Kind = robocache.Kind(dtypeName)
		f.DType = robocache.Uint8
		f.Height, f.Width, f.Channels = frameSize(r)
		f.Codec = r.codec()
		if v, ok := r.numberValue("video.fps"); ok && f.FPS.Zero() {
			f.FPS, _ = robocache.RateOf(fmt.Sprint(v))
		}
		if r.flagValue("is_depth_map") || r.flagValue("video.is_depth_map") {
			f.DType = robocache.Uint16
			f.Depth = readDepth(r)
			if f.Kind == robocache.KindImage && r.stringValue("depth_unit") == "m" {
				// lerobot infers the unit from the frames in the same way: floats are metres
				f.DType = robocache.Float32
			}
			f.StateDepth()
		}
	case "string":
		f.Kind, f.DType = robocache.KindText, robocache.String
	case "language":
		f.Kind, f.DType = robocache.KindEvent, robocache.JSON
	default:
		f.Kind = robocache.KindNumeric
		dtype, ok := robocache.ParseDType(dtypeName)
		f.DType = dtype
		isNumber := dtype.Size() > 0 && dtype != robocache.BFloat16
		if !ok || !isNumber {
			return f, fmt.Errorf(
				"feature %s has dtype %q, which no version defines",
				r.key,
				r.DType,
			)
		}
		readRelative(r, &f)
	}
	return f, nil
}

// codec returns the declared codec of a video, or "".
func (r *declared) codec() string {
	return cmp.Or(r.stringValue("video.codec"), r.stringValue("codec"))
}

// codecOf returns the declared codec of a file. It is the entry of the file in video.codecs, or
// else the codec of the feature. RoboCache writes video.codecs for files whose codec differs from
// that of the first file.
func (r *declared) codecOf(path string) string {
	byFile, _ := r.lookUp("video.codecs").(map[string]any)
	fileCodec, _ := byFile[path].(string)
	return cmp.Or(fileCodec, r.codec())
}

// lookUp returns the value of key in info, or else in the older video_info.
func (r *declared) lookUp(key string) any {
	if v, ok := r.Info[key]; ok {
		return v
	}
	return r.VideoInfo[key]
}

// stringValue returns the string of a key in info or video_info, or "".
func (r *declared) stringValue(key string) string { s, _ := r.lookUp(key).(string); return s }

// flagValue reports whether a key is true in info or in video_info.
func (r *declared) flagValue(key string) bool {
	a, _ := r.Info[key].(bool)
	b, _ := r.VideoInfo[key].(bool)
	return a || b
}

// numberValue returns the number of a key in info or video_info. ok is false if there is none.
func (r *declared) numberValue(key string) (number float64, ok bool) {
	number, ok = r.lookUp(key).(float64)
	return number, ok
}

// readDepth returns the depth encoding. Values that are not stated are the defaults of lerobot's
// recorder.
func readDepth(r *declared) *robocache.Depth {
	d := &robocache.Depth{Min: 0.01, Max: 10, Shift: 3.5, Log: true, Unit: "m"}
	for key, to := range map[string]*float64{
		"video.depth_min": &d.Min,
		"video.depth_max": &d.Max,
		"video.shift":     &d.Shift,
	} {
		if v, ok := r.numberValue(key); ok {
			*to = v
		}
	}
	if v, ok := r.lookUp("video.use_log").(bool); ok {
		d.Log = v
	}
	u := r.stringValue("depth_unit")
	switch {
	case u == "m" || u == "mm":
		d.Unit = u
	case r.DType == "image":
		d.Unit = "" // the type of the images determines it
	}
	return d
}

// frameSize returns height, width and channels. The names of the axes determine their order.
// Without names, a first axis of at most 4 is the channels if the last axis is larger.
func frameSize(r *declared) (height, width, channels int) {
	shape := r.shape
	if len(shape) == 2 {
		return shape[0], shape[1], 1
	}
	if len(shape) != 3 {
		return 0, 0, 0
	}
	var names []string
	if json.Unmarshal(r.Names, &names) == nil && len(names) == 3 {
		axisOf := func(words ...string) int {
			return slices.IndexFunc(
				names,
				func(n string) bool { return slices.Contains(words, strings.ToLower(n)) },
			)
		}
		heightAxis := axisOf("height", "h", "rows")
		widthAxis := axisOf("width", "w", "cols")
		channelAxis := axisOf("channel", "channels", "c", "rgb")
		if heightAxis >= 0 && widthAxis >= 0 && channelAxis >= 0 {
			return shape[heightAxis], shape[widthAxis], shape[channelAxis]
		}
	}
	if shape[0] <= 4 && shape[2] > 4 {
		return shape[1], shape[2], shape[0]
	}
	return shape[0], shape[1], shape[2]
}

// columnOf returns the column of a feature. It returns an error if its kind is not one of kinds.
func (d *Dataset) columnOf(key string, kinds ...robocache.Kind) (*column, error) {
	i, ok := d.byKey[key]
	if !ok {
		keys := d.About.Keys()
		if len(keys) > 50 {
			keys = append(keys[:50], "…")
		}
		return nil, robocache.Misuse(
			"lerobot",
			robocache.Where{"stream": key},
			"no feature %q",
			key,
		).WithHint("features: %s", strings.Join(keys, ", "))
	}
	if len(kinds) > 0 {
		if err := op.Kind(key, d.columns[i].kind, kinds...); err != nil {
			return nil, err
		}
	}
	return &d.columns[i], nil
}

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

// source says where a feature's rows come from.
type source uint8

const (
	fromColumn source = iota // a column of the data files
	derived                  // counted: the column is not there
	fromVideo
)

// column is what reading needs of one feature.
type column struct {
	key      string
	num      int32 // place in Info.Features, and the column number of its cache units
	src      source
	kind     robocache.Kind
	dtype    robocache.DType
	shape    []int
	rowBytes int
}

func isDefault(key string) bool {
	return slices.ContainsFunc(
		write.Bookkeeping,
		func(f robocache.Feature) bool { return f.Key == key },
	)
}

// describe makes the features: what is declared and there, the default columns, and columns that
// nobody declared.
func (d *Dataset) describe(ctx context.Context) error {
	schema, err := d.firstSchema(ctx)
	if err != nil {
		return err
	}
	for i := range d.raw.features {
		r := &d.raw.features[i]
		f, err := feature(r)
		if err != nil {
			d.drop(&f, err.Error(), "declare one of the format's types")
			continue
		}
		missing := func(what string) {
			d.drop(
				&f,
				"feature "+f.Key+" is declared, but "+what,
				"remove it from info.json, or fetch what is missing",
			)
		}
		switch {
		case f.Kind == robocache.KindVideo:
			cameraValue, err := d.openCamera(ctx, &f)
			if err != nil {
				return err
			}
			if cameraValue {
				d.add(f, fromVideo)
			} else {
				missing("no video file of it is there")
			}
		case schema != nil && schema.Column(r.key) == nil && f.Default:
			d.add(f, derived)
		case schema != nil && schema.Column(r.key) == nil:
			missing("no column of that name is in the data")
		default:
			if most, ok := longestRow(
				schema,
				r.key,
			); ok && f.Kind == robocache.KindNumeric &&
				int64(f.Elements()) > max(most, 1<<16) {
				// Before anyone allocates by the shape. Smaller ones are found out when they are
				// read: the other features are served.
				return infoError(
					robocache.ErrMalformed,
					"/features/"+escapePointer(r.key)+"/shape",
					fmt.Sprintf(
						"%v is more than a row holds: the data have at most %d values",
						f.Shape,
						most,
					),
				)
			}
			d.add(f, fromColumn)
		}
	}
	if schema != nil {
		for _, top := range schema.Root.Children {
			if _, ok := d.byKey[top.Name]; !ok && d.raw.declares(top.Name) == nil {
				d.undeclared(top)
			}
		}
	}
	for _, f := range write.Bookkeeping {
		if _, ok := d.byKey[f.Key]; ok || f.Key == "task_index" && len(d.About.Tasks) != 1 {
			continue
		}
		f.Shape = []int{1}
		d.add(f, derived)
	}
	return nil
}

// longestRow is how many values a row of a column can have at most, by the footer of a file with
// rows; ok is false where it does not say.
func longestRow(schema *pq.File, key string) (n int64, ok bool) {
	if schema == nil {
		return 0, false
	}
	leaf := schema.Column(key).OnlyLeaf()
	if leaf == nil {
		return 0, false
	}
	for g := range schema.Groups {
		if c, there := schema.Chunk(g, leaf); there && schema.Groups[g].Rows > 0 {
			n, ok = max(n, c.Values), true
		}
	}
	return n, ok
}

func (f *infoFile) declares(key string) *declared {
	if i := slices.IndexFunc(f.features, func(d declared) bool { return d.key == key }); i >= 0 {
		return &f.features[i]
	}
	return nil
}

// drop adds the finding that a feature is left out.
func (d *Dataset) drop(f *robocache.Feature, why, hint string) {
	sev := robocache.SeverityWarning
	if robocache.Vital(f.Kind, f.Key) {
		sev = robocache.SeverityError
	}
	d.find(
		robocache.Finding{
			Severity: sev,
			Code:     "feature-dropped",
			Where: robocache.Where{
				"file":    infoPath,
				"pointer": "/features/" + escapePointer(f.Key),
			},
			Message:      why + ": it is left out",
			Hint:         hint,
			NotDelivered: f.Key,
			Class:        "malformed",
		},
	)
}

func (d *Dataset) add(f robocache.Feature, src source) {
	n := len(d.About.Features)
	d.About.Features = append(d.About.Features, f)
	d.cols = append(
		d.cols,
		column{
			key:      f.Key,
			num:      int32(n),
			src:      src,
			kind:     f.Kind,
			dtype:    f.DType,
			shape:    f.Shape,
			rowBytes: f.RowBytes(),
		},
	)
	d.byKey[f.Key] = n
}

// undeclared takes in a column that info.json does not name, where its type is plain.
func (d *Dataset) undeclared(top *pq.Node) {
	finding := robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "undeclared-column",
		Where:    robocache.Where{"file": infoPath, "column": top.Name},
		Message:  "the data has a column that info.json does not declare: " + top.Name,
		Hint:     "declare it, or remove the column: LeRobot refuses to open such a set",
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
		finding.Message += "; its shape is not known: it is left out"
		finding.NotDelivered = top.Name
	} else {
		d.add(f, fromColumn)
	}
	d.find(finding)
}

// firstSchema is the footer of the first data file; nil for a set without episodes. A missing first
// file is not fatal: others may be there.
func (d *Dataset) firstSchema(ctx context.Context) (*pq.File, error) {
	n := d.tab.files()
	if n == 0 {
		return nil, nil
	}
	best, found := d.paths.data, 0
	if !d.isTemplateProven(n) {
		var err error
		if best, _, found, err = d.probe(ctx, d.paths.data, n, d.dataPlace); err != nil {
			return nil, err
		}
	}
	if found > 0 && d.raw.dataPath != "" && best[0] != d.raw.dataPath {
		d.templateLies(
			"/data_path",
			"",
			fmt.Sprintf("data_path %q does not name the files; %q does", d.raw.dataPath, best[0]),
			"write the template that fits",
		)
	}
	d.paths.data = best
	var first error
	probes := slices.Compact([]int{0, n / 2, n - 1})
	if !robocache.IsRemote(d.Bytes) { // some episodes' files alone may be here
		for i := range n {
			probes = append(probes, i)
		}
	}
	for _, i := range probes {
		f, err := d.tab.footer(ctx, int32(i))
		if err == nil {
			return f.pq, nil
		}
		if ctx.Err() != nil {
			return nil, err
		}
		if first = cmp.Or(
			first,
			err,
		); !errors.Is(err, robocache.ErrNotFound) &&
			!errors.Is(err, robocache.ErrMalformed) {
			break
		}
	}
	return nil, first
}

// isTemplateProven reports whether the first, middle and last of n data files were opened under the
// names that the first template gives them.
func (d *Dataset) isTemplateProven(n int) bool {
	for _, i := range []int{0, n / 2, n - 1} {
		v, ok := d.tab.cache.Peek(unit{file: int32(i), col: unitFooter})
		if !ok {
			return false
		}
		name, err := expand(d.paths.data[0], d.dataPlace(int32(i)))
		if err != nil || name != v.(*tableFile).name {
			return false
		}
	}
	return true
}

// probe finds the template that names the first, middle and last of n files, and how many of them
// it names.
func (d *Dataset) probe(
	ctx context.Context,
	templates []string,
	n int,
	at func(i int32) place,
) (best []string, probes []place, found int, err error) {
	for _, i := range slices.Compact([]int{0, n / 2, n - 1}) {
		probes = append(probes, at(int32(i)))
	}
	if best, found, err = d.paths.choose(ctx, templates, probes); err != nil {
		return best, probes, found, err
	}
	return best, probes, found, nil
}

// templateLies is the finding that a path template of info.json does not name the files.
func (d *Dataset) templateLies(pointer, stream, msg, hint string) {
	f := warn("path-template", infoPath, msg, hint)
	if f.Where["pointer"] = pointer; stream != "" {
		f.Where["stream"] = stream
	}
	d.find(f)
}

// feature turns a declaration into a Feature.
func feature(r *declared) (robocache.Feature, error) {
	f := robocache.Feature{Key: r.key, Shape: r.shape, Default: isDefault(r.key)}
	if len(r.Names) > 0 && string(r.Names) != "null" {
		f.Names = r.Names
	}
	if len(r.FPS) > 0 {
		if rate, err := robocache.RateOf(strings.Trim(string(r.FPS), `"`)); err == nil {
			f.FPS = rate
		}
	}
	switch t := cmp.Or(map[string]string{"float": "float32", "double": "float64", "int": "int64", "boolean": "bool", "str": "string"}[r.DType], r.DType); t {
	case "video", "image":
		f.Kind, f.DType = robocache.Kind(t), robocache.Uint8
		f.Height, f.Width, f.Channels = frameSize(r)
		f.Codec = r.codec()
		if v, ok := r.number("video.fps"); ok && f.FPS.Zero() {
			f.FPS, _ = robocache.RateOf(fmt.Sprint(v))
		}
		if r.flag("is_depth_map") || r.flag("video.is_depth_map") {
			f.DType, f.Depth = robocache.Uint16, depth(r)
			if f.Kind == robocache.KindImage && r.str("depth_unit") == "m" {
				// so the reference infers the unit from the frames: floats are metres
				f.DType = robocache.Float32
			}
			f.StateDepth()
		}
	case "string":
		f.Kind, f.DType = robocache.KindText, robocache.String
	case "language":
		f.Kind, f.DType = robocache.KindEvent, robocache.JSON
	default:
		var ok bool
		f.Kind = robocache.KindNumeric
		if f.DType, ok = robocache.ParseDType(
			t,
		); !ok || f.DType.Size() == 0 ||
			f.DType == robocache.BFloat16 {
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

// codec is what info says of a video's coding; "" for nothing.
func (r *declared) codec() string { return cmp.Or(r.str("video.codec"), r.str("codec")) }

// codecOf is what info says of a file: our writer names those of another codec than the first.
func (r *declared) codecOf(path string) string {
	own, _ := r.any("video.codecs").(map[string]any)
	said, _ := own[path].(string)
	return cmp.Or(said, r.codec())
}

// any looks a key up in info, then in the older video_info.
func (r *declared) any(key string) any {
	if v, ok := r.Info[key]; ok {
		return v
	}
	return r.VideoInfo[key]
}

func (r *declared) str(key string) string { s, _ := r.any(key).(string); return s }

func (r *declared) flag(key string) bool {
	a, _ := r.Info[key].(bool)
	b, _ := r.VideoInfo[key].(bool)
	return a || b
}

func (r *declared) number(
	key string,
) (float64, bool) {
	v, ok := r.any(key).(float64)
	return v, ok
}

// depth reads the depth code; what is not said is the recorder's default.
func depth(r *declared) *robocache.Depth {
	d := &robocache.Depth{Min: 0.01, Max: 10, Shift: 3.5, Log: true, Unit: "m"}
	for key, to := range map[string]*float64{"video.depth_min": &d.Min, "video.depth_max": &d.Max, "video.shift": &d.Shift} {
		if v, ok := r.number(key); ok {
			*to = v
		}
	}
	if v, ok := r.any("video.use_log").(bool); ok {
		d.Log = v
	}
	switch u := r.str("depth_unit"); {
	case u == "m" || u == "mm":
		d.Unit = u
	case r.DType == "image":
		d.Unit = "" // the images say it by their type
	}
	return d
}

// frameSize reads height, width and channels: only names say which is which. Without them the
// smallest end is taken for channels.
func frameSize(r *declared) (h, w, c int) {
	s := r.shape
	if len(s) == 2 {
		return s[0], s[1], 1
	}
	if len(s) != 3 {
		return 0, 0, 0
	}
	var names []string
	if json.Unmarshal(r.Names, &names) == nil && len(names) == 3 {
		at := func(words ...string) int {
			return slices.IndexFunc(
				names,
				func(n string) bool { return slices.Contains(words, strings.ToLower(n)) },
			)
		}
		ih, iw, ic := at(
			"height",
			"h",
			"rows",
		), at(
			"width",
			"w",
			"cols",
		), at(
			"channel",
			"channels",
			"c",
			"rgb",
		)
		if ih >= 0 && iw >= 0 && ic >= 0 {
			return s[ih], s[iw], s[ic]
		}
	}
	if s[0] <= 4 && s[2] > 4 {
		return s[1], s[2], s[0]
	}
	return s[0], s[1], s[2]
}

// get finds a column by key.
func (d *Dataset) get(key string, kinds ...robocache.Kind) (*column, error) {
	i, ok := d.byKey[key]
	if !ok {
		keys := d.About.Keys()
		if len(keys) > 50 {
			keys = append(keys[:50], "…")
		}
		return nil, robocache.Misuse("lerobot", robocache.Where{"stream": key}, "no feature %q", key).
			WithHint("features: %s", strings.Join(keys, ", "))
	}
	if len(kinds) > 0 {
		if err := op.Kind(key, d.cols[i].kind, kinds...); err != nil {
			return nil, err
		}
	}
	return &d.cols[i], nil
}

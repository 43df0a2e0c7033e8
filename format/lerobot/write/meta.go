package write

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pqw"
	"github.com/goatnote-inc/robocache/stats"
)

// writeStats writes meta/stats.json.
func (w *Writer) writeStats(ctx context.Context) error {
	all, _, err := w.collector.Stats(ctx) // left-out values were reported per episode
	if err != nil {
		return err
	}
	for key, p := range w.pixels {
		if fs := p.Stats(); fs != nil {
			all[key] = fs
		}
	}
	for key, k := range w.known {
		all[key] = k.statsWith(w.pixels[key])
	}
	encoded, err := stats.Marshal(all)
	if err != nil {
		return err
	}
	return w.putFile(ctx, "meta/stats.json", encoded)
}

// writeTexts writes the tasks, the README and the extra files.
func (w *Writer) writeTexts(ctx context.Context) error {
	if err := w.writeTasks(ctx); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(w.cfg.Extra)) {
		if err := w.putFile(ctx, name, w.cfg.Extra[name]); err != nil {
			return err
		}
	}
	if _, ok := w.cfg.Extra["README.md"]; !ok {
		if err := w.putFile(ctx, "README.md", w.datasetCard()); err != nil {
			return err
		}
	}
	return nil
}

// pandasTasks makes the text the index of the data frame. Without it, lerobot uses the number as
// the text.
const pandasTasks = `{"index_columns": ["task"], "column_indexes": [{"name": null, "field_name": null, "pandas_type": "unicode", "numpy_type": "object", "metadata": {"encoding": "UTF-8"}}], ` +
	`"columns": [{"name": "task_index", "field_name": "task_index", "pandas_type": "int64", "numpy_type": "int64", "metadata": null}, ` +
	`{"name": "task", "field_name": "task", "pandas_type": "unicode", "numpy_type": "object", "metadata": null}], "attributes": {}, "creator": {"library": "robocache", "version": "` + writerFormatVersion + `"}, "pandas_version": "2.3.3"}`

// writeTasks writes meta/tasks.parquet.
func (w *Writer) writeTasks(ctx context.Context) error {
	if w.cfg.perEpisode() {
		return w.writeTaskLines(ctx)
	}
	schema, meta := schemaOf(
		[]outColumn{
			scalarColumn("task_index", robocache.Int64, false),
			scalarColumn("task", robocache.String, false),
		},
		"pandas",
		pandasTasks,
	)
	columns, err := pqw.Leaves(schema)
	if err != nil {
		return err
	}
	leaves := valuesOf(columns)
	for i, text := range w.texts {
		leaves[0].Int64(int64(i), 0, 1) // level 1: the value is not null
		leaves[1].Text(text, 0, 1)
	}
	t, err := w.createTable(ctx, "meta/tasks.parquet", schema, meta)
	if err != nil {
		return err
	}
	defer t.out.Abort()
	chunks, err := chunksOf(leaves)
	if err != nil {
		return err
	}
	if err := t.appendGroup(int64(len(w.texts)), chunks); err != nil {
		return err
	}
	return t.commit()
}

// jsonObject is a JSON object that keeps the order of its keys.
type jsonObject []jsonField

// jsonField is a key of a jsonObject with its value.
type jsonField struct {
	key   string
	value any
}

// MarshalJSON encodes the fields in their order.
func (o jsonObject) MarshalJSON() ([]byte, error) {
	b := []byte{'{'}
	for i, e := range o {
		if i > 0 {
			b = append(b, ',')
		}
		key, err := jsonMarshal(e.key)
		if err != nil {
			return nil, err
		}
		value, err := jsonMarshal(e.value)
		if err != nil {
			return nil, err
		}
		b = append(append(append(b, key...), ':'), value...)
	}
	return append(b, '}'), nil
}

// jsonMarshal is json.Marshal without escapes for HTML.
func jsonMarshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// infoText returns the content of info.json.
func (w *Writer) infoText() (_ []byte, err error) {
	defer robocache.LocateIn(&err, "file", "meta/info.json")
	var features jsonObject
	for i := range w.features {
		f := &w.features[i].Feature
		features = append(features, jsonField{f.Key, w.featureInfo(f)})
	}
	videoPath := any(nil)
	if len(w.cameraKeys) > 0 {
		videoPath = defaultVideoPath
	}
	robot := any(nil)
	if w.cfg.Robot != "" {
		robot = w.cfg.Robot
	}
	splits := w.cfg.Splits
	if splits == nil {
		splits = map[string]string{}
		if n := w.episodeCount(); n > 0 {
			splits["train"] = fmt.Sprintf("0:%d", n)
		}
	}
	info := jsonObject{
		{"codebase_version", cmp.Or(w.cfg.Version, writtenVersion)},
		{"fps", fpsNumber(w.cfg.FPS)},
		{"features", features},
		{"total_episodes", w.episodeCount()},
		{"total_frames", w.frameCount()},
		{"total_tasks", len(w.texts)},
		{"chunks_size", w.cfg.ChunksSize},
		{"data_files_size_in_mb", wholeMebibytes(w.cfg.DataFileBytes)},
		{"video_files_size_in_mb", wholeMebibytes(w.cfg.VideoFileBytes)},
		{"data_path", defaultDataPath},
		{"video_path", videoPath},
		{"robot_type", robot},
		{"splits", splits},
	}
	if w.cfg.perEpisode() {
		info = w.episodePaths(info)
	}
	for _, key := range slices.Sorted(maps.Keys(w.cfg.Info)) {
		if !slices.Contains(infoKeys, key) {
			info = append(info, jsonField{key, w.cfg.Info[key]})
		}
	}
	return indentedJSON(info)
}

// featureInfo returns the entry of a feature in info.json.
func (w *Writer) featureInfo(f *robocache.Feature) jsonObject {
	dtype := f.DType.String()
	shape := f.Shape
	names := any(nil)
	if len(f.Names) > 0 {
		names = f.Names
	}
	if len(shape) == 0 {
		shape = []int{1}
	}
	switch f.Kind {
	case robocache.KindImage, robocache.KindVideo:
		dtype = string(f.Kind)
		shape, names = frameShape(f, names)
	case robocache.KindText:
		dtype = "string"
	case robocache.KindEvent:
		dtype = "language"
	}
	entry := jsonObject{{"dtype", dtype}, {"shape", shape}, {"names", names}}
	if f.Relative != nil {
		entry = append(entry, jsonField{"relative", f.Relative})
	}
	if f.Kind == robocache.KindVideo {
		entry = append(entry, jsonField{"info", w.cameras[f.Key].videoInfo(w.cfg.FPS)})
	} else if unit := depthUnit(f); unit != "" {
		depth := jsonObject{{"is_depth_map", true}, {"depth_unit", unit}}
		entry = append(entry, jsonField{"info", depth})
	}
	return entry
}

// infoKeys lists the keys of info.json in their order.
var infoKeys = []string{
	"codebase_version",
	"fps",
	"features",
	"total_episodes",
	"total_frames",
	"total_tasks",
	"chunks_size",
	"data_files_size_in_mb",
	"video_files_size_in_mb",
	"data_path",
	"video_path",
	"robot_type",
	"splits",
}

// indentedJSON encodes o with the indentation that lerobot uses.
func indentedJSON(o jsonObject) ([]byte, error) {
	var b bytes.Buffer
	text, err := jsonMarshal(o)
	if err != nil {
		return nil, err
	}
	if err := json.Indent(&b, text, "", "    "); err != nil {
		return nil, err
	}
	b.WriteByte('\n')
	return b.Bytes(), nil
}

// isDepth reports whether frames are depth. A source may only indicate this by their type: 16 bits,
// or floats.
func isDepth(f *robocache.Feature) bool {
	return f.Depth != nil || f.DType == robocache.Uint16 || f.DType == robocache.Float32
}

// depthUnit returns the unit of depth images that stay images, and "" for other features. It is the
// declared unit, or the one that lerobot infers from the type.
func depthUnit(f *robocache.Feature) string {
	switch {
	case f.Kind != robocache.KindImage || !isDepth(f):
		return ""
	case f.DepthUnit() != "":
		return f.DepthUnit()
	case f.DType == robocache.Float32:
		return "m"
	}
	return "mm"
}

// fpsNumber returns an integer if the rate is one, as lerobot requires.
func fpsNumber(r robocache.Rate) any {
	if r.Den == 1 {
		return r.Num
	}
	return r.Float()
}

// frameShape returns the shape with the actual size of the frames, in the declared order of axes.
func frameShape(f *robocache.Feature, names any) ([]int, any) {
	h, w, c := f.Height, f.Width, f.Channels
	if h == 0 || w == 0 {
		return f.Shape, names
	}
	if c == 0 {
		c = 3
		if isDepth(f) {
			c = 1
		}
	}
	if len(f.Shape) == 3 && names != nil {
		if n := len(f.Shape); f.Shape[0] == c && f.Shape[n-1] != c {
			return []int{c, h, w}, names
		}
		return []int{h, w, c}, names
	}
	return []int{h, w, c}, []string{"height", "width", "channels"}
}

// CardText is a part of the README that marks it as written by RoboCache.
const CardText = "dataset, written by RoboCache."

// datasetCard returns the README for the Hub. Its front matter tells the viewer which files are
// data; without it, the viewer uses the mp4s.
func (w *Writer) datasetCard() []byte {
	var b bytes.Buffer
	b.WriteString(
		"---\ntask_categories:\n- robotics\ntags:\n- LeRobot\nconfigs:\n- config_name: " +
			"default\n  data_files: data/*/*.parquet\n---\n\n",
	)
	version := cmp.Or(w.cfg.Version, writtenVersion)
	b.WriteString("A LeRobot " + version + " " + CardText + "\n\n")
	fmt.Fprintf(
		&b,
		"%d episodes, %d frames at %s Hz, %d tasks.\n\n",
		w.episodeCount(),
		w.frameCount(),
		w.cfg.FPS,
		len(w.texts),
	)
	b.WriteString(
		"Statistics are exact. Those of frames look at clamp(n^0.75, 100, 10000) evenly spaced " +
			"frames an episode, all pixels of each, unless the conversion was told otherwise.\n",
	)
	b.WriteString("On the Hub, give the revision the git tag " + version +
		": loaders look for it.\n")
	return b.Bytes()
}

package lerobot

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/pq"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

// EpisodeTable is the episodes table with all columns of its files, in the order of episode_index.
type EpisodeTable struct {
	Columns []EpisodeColumn         `json:"columns"`
	Data    EpisodeFiles            `json:"data"`   // data file of each episode
	Videos  map[string]EpisodeFiles `json:"videos"` // video file of each episode, by camera
}

// EpisodeColumn is one column.
type EpisodeColumn struct {
	Name string `json:"name"`
	// Type is "int64", "string", "list<string>" and so on, or "" if the type is mixed or unknown.
	Type string `json:"type"`
	// Values is a JSON array with one value per episode. It is a string because it may hold NaN, as
	// Python's json module writes and reads it.
	Values string `json:"values"`
}

// EpisodeFiles states the file of each episode. Each name is stored once.
type EpisodeFiles struct {
	Names []string `json:"names"` // relative to the dataset's root
	Of    []int32  `json:"of"`    // positions in Names; nil if episode i has the i-th name
}

// InfoJSON returns the content of meta/info.json.
func (d *Dataset) InfoJSON(ctx context.Context) (json.RawMessage, error) {
	b, err := store.ReadFile(ctx, d.Bytes, infoPath, maxJSON)
	if err == nil {
		b, err = checkJSON(infoPath, b)
	}
	return b, robocache.At(err, robocache.Where{"file": infoPath})
}

// EpisodeTable reads the whole table. Statistics of episodes are left out, as in lerobot's own
// class, because they are most of the bytes. Row numbers of the dataset are counted from the
// lengths, which gives the stored values in every sound dataset. A v2 table gets the columns by
// which v3 finds files.
func (d *Dataset) EpisodeTable(ctx context.Context) (t *EpisodeTable, err error) {
	defer crash.Recover("lerobot episodes", &err)
	t = &EpisodeTable{Videos: map[string]EpisodeFiles{}}
	all := &textColumns{types: map[string]string{}, values: map[string][]string{}}
	if d.raw.major == 2 {
		if err := d.tableV2(ctx, all); err != nil {
			return t, err
		}
	} else {
		noStats := func(c string) bool { return !strings.HasPrefix(c, "stats/") }
		if err := d.tableV3(ctx, all, noStats); err != nil {
			return t, err
		}
	}
	rows := d.episodes.rows
	if all.rows != rows {
		return nil, changedError(fmt.Sprintf("%d rows", rows), fmt.Sprint(all.rows))
	}
	for _, c := range all.names {
		t.Columns = append(t.Columns, EpisodeColumn{
			c,
			all.types[c],
			jsonArray(reader.Permute(padNulls(all.values[c], rows), d.paths.permutation)),
		})
	}
	if err := d.checkTableIDs(t); err != nil {
		return nil, err
	}
	if err := d.setRowColumns(ctx, t); err != nil {
		return t, err
	}
	d.setDataColumns(t)
	for i := range d.About.Features {
		if c := d.cameras[d.About.Features[i].Key]; c != nil {
			d.setCameraColumns(t, c)
		}
	}
	return t, nil
}

// checkTableIDs returns an error if the table has other episodes than when the dataset was opened.
func (d *Dataset) checkTableIDs(t *EpisodeTable) error {
	isIndex := func(c EpisodeColumn) bool { return c.Name == "episode_index" }
	k := slices.IndexFunc(t.Columns, isIndex)
	if k < 0 {
		return nil
	}
	n := d.episodes.count()
	var ids []float64 // pandas may have written integers as floats
	if json.Unmarshal([]byte(t.Columns[k].Values), &ids) != nil || len(ids) != n {
		return changedError(fmt.Sprintf("%d numbers", n), fmt.Sprint(len(ids)))
	}
	for i, id := range ids {
		if int64(id) != d.episodes.dataID(i) {
			return changedError(
				fmt.Sprintf("episode %d in place %d", d.episodes.indexAt(i), i),
				fmt.Sprint(int64(id)),
			)
		}
	}
	return nil
}

// setIntegers sets an integer column to the value of each episode. An existing column is kept
// unless override is set.
func (d *Dataset) setIntegers(
	t *EpisodeTable,
	name string,
	override bool,
	value func(i int) int64,
) {
	anyValue := func(i int) any { return value(i) }
	setColumn(t, name, "int64", d.episodes.count(), override, anyValue)
}

// setRowColumns sets the columns of rows, lengths and tasks.
func (d *Dataset) setRowColumns(ctx context.Context, t *EpisodeTable) error {
	e := d.episodes
	d.setIntegers(t, "dataset_from_index", true, func(i int) int64 { return e.from[i] })
	d.setIntegers(t, "dataset_to_index", true, func(i int) int64 { return e.from[i+1] })
	d.setIntegers(t, "length", true, func(i int) int64 { return int64(e.length[i]) })
	texts, err := d.episodeTasks(ctx)
	if err != nil {
		return err
	}
	tasks := func(i int) any { return texts.of(i) }
	setColumn(t, "tasks", "list<string>", e.count(), d.raw.major == 2, tasks)
	return nil
}

// setDataColumns sets the columns and the names of the data files.
func (d *Dataset) setDataColumns(t *EpisodeTable) {
	data := func(i int) place { f, _ := d.tables.fileOf(i); return d.dataPlace(f) }
	d.setIntegers(t, "data/chunk_index", true, func(i int) int64 { return data(i).chunk })
	d.setIntegers(t, "data/file_index", true, func(i int) int64 { return data(i).fileNumber() })
	t.Data = expandFiles(
		d.paths.data[0],
		d.tables.fileCount(),
		d.filesOf(d.episodes.file),
		d.dataPlace,
	)
}

// setCameraColumns sets the columns and the names of the video files of a camera.
func (d *Dataset) setCameraColumns(t *EpisodeTable, c *camera) {
	n := d.episodes.count()
	placeOf := func(i int32) place { return d.placeOf(c.cols.files[i], c.key) }
	of := d.filesOf(c.cols.file)
	t.Videos[c.key] = expandFiles(c.templates[0], len(c.cols.files), of, placeOf)
	prefix := "videos/" + c.key + "/"
	chunk := func(i int) int64 { return placeOf(c.fileOf(i)).chunk }
	file := func(i int) int64 { return placeOf(c.fileOf(i)).fileNumber() }
	d.setIntegers(t, prefix+"chunk_index", false, chunk)
	d.setIntegers(t, prefix+"file_index", false, file)
	if d.raw.major == 2 { // each episode has its own mp4
		start := func(int) any { return 0.0 }
		end := func(i int) any { return float64(d.episodes.length[i]) / d.raw.fps.Float() }
		setColumn(t, prefix+"from_timestamp", "float64", n, false, start)
		setColumn(t, prefix+"to_timestamp", "float64", n, false, end)
	}
}

// changedError returns the error that the episodes table changed after Open.
func changedError(want, got string) error {
	return robocache.Malformed("lerobot", robocache.Where{"file": "meta/episodes"}, "").
		Expected(want+", as when the dataset was opened", got).WithHint("open it again")
}

// fileNumber returns the number in the name of the file. In v2 it is the episode, and in v3 the
// file; the other one is 0.
func (p place) fileNumber() int64 { return max(p.file, p.episode) }

// setColumn sets a column of n computed values. An existing column is kept unless override is set.
func setColumn(t *EpisodeTable, name, typ string, n int, override bool, value func(i int) any) {
	existing := slices.IndexFunc(t.Columns, func(c EpisodeColumn) bool { return c.Name == name })
	if existing >= 0 && !override {
		return
	}
	texts := make([]string, n)
	for i := range texts {
		b, err := json.Marshal(value(i))
		if err != nil {
			b = []byte("null")
		}
		texts[i] = string(b)
	}
	c := EpisodeColumn{name, typ, jsonArray(texts)}
	if existing < 0 {
		t.Columns = append(t.Columns, c)
	} else {
		t.Columns[existing] = c
	}
}

// jsonArray joins JSON texts to a JSON array.
func jsonArray(values []string) string { return "[" + strings.Join(values, ",") + "]" }

// filesOf returns file, or nil if episode i has file i.
func (d *Dataset) filesOf(file []int32) []int32 {
	if d.raw.major == 2 {
		return nil
	}
	return file
}

// expandFiles returns the names of n files, expanded from a template.
func expandFiles(template string, n int, of []int32, placeOf func(int32) place) EpisodeFiles {
	f := EpisodeFiles{Names: make([]string, n), Of: of}
	for i := range f.Names {
		f.Names[i], _ = expandTemplate(template, placeOf(int32(i))) // checked by Open
	}
	return f
}

// textColumns holds columns as JSON texts. Rows that lack a column have null.
type textColumns struct {
	names  []string
	types  map[string]string
	values map[string][]string
	rows   int // rows of the previous files or lines
}

// addValues appends values to a column, after filling it with nulls up to row c.rows.
func (c *textColumns) addValues(name, typ string, values ...string) {
	if old, known := c.types[name]; !known {
		c.names = append(c.names, name)
		c.types[name] = typ
	} else if old != typ {
		c.types[name] = "" // for example, 0 is an integer in one file only
	}
	c.values[name] = append(padNulls(c.values[name], c.rows), values...)
}

// padNulls appends nulls to a column until it has n rows.
func padNulls(v []string, n int) []string {
	for len(v) < n {
		v = append(v, "null")
	}
	return v
}

// tableV3 reads the columns of the Parquet files that kept selects.
func (d *Dataset) tableV3(
	ctx context.Context,
	t *textColumns,
	kept func(column string) bool,
) error {
	var tops []*pq.Node
	if _, err := d.eachEpisodesGroup(
		ctx,
		kept,
		func(name string, f *pq.File) (leaves []*pq.Node, err error) {
			tops = tops[:0]
			for _, top := range f.Root.Children {
				hasName := func(n *pq.Node) bool { return n.Name == top.Name }
				if !kept(top.Name) || slices.ContainsFunc(tops, hasName) {
					continue
				}
				isUnsupported := func(l *pq.Node) bool {
					return l.Type == pq.Int96 || l.Type == pq.FixedLenByteArray
				}
				if slices.ContainsFunc(top.Leaves(nil), isUnsupported) {
					d.noticeOnce(warningAt(
						"episodes-columns",
						name,
						"the column "+top.Name+" is left out: the type of its values is not "+
							"supported",
						"write it as numbers or text",
					))
					continue
				}
				tops = append(tops, top)
				leaves = top.Leaves(leaves)
				t.addValues(top.Name, typeName(top)) // also for a file without rows
			}
			return leaves, nil
		},
		func(r robocache.Ranged, f *pq.File, g int) error {
			for _, top := range tops {
				v, err := pq.ReadJSON(ctx, r, f, g, top, nil, tableLimit)
				if err != nil {
					return robocache.At(err, robocache.Where{"row_group": g, "column": top.Name})
				}
				t.addValues(top.Name, typeName(top), v...)
			}
			t.rows += int(f.Groups[g].Rows)
			return nil
		},
	); err != nil {
		return err
	}
	return nil
}

// typeName returns the type of a column of numbers, texts, or lists of them, and "" for records.
func typeName(n *pq.Node) string {
	if n.Group() {
		if n.Note != pq.List || len(n.Children) != 1 {
			return ""
		}
		// Parquet writes a list as a group with a repeated child. The elements are that child or,
		// in newer files, its only child.
		element := n.Children[0]
		if element.Group() && len(element.Children) == 1 {
			element = element.Children[0]
		}
		if inner := typeName(element); inner != "" {
			return "list<" + inner + ">"
		}
		return ""
	}
	if t := pq.DType(n); t != robocache.InvalidDType {
		return t.String()
	}
	return ""
}

// tableV2 reads every key of the lines of meta/episodes.jsonl.
func (d *Dataset) tableV2(ctx context.Context, t *textColumns) (err error) {
	defer robocache.LocateIn(&err, "file", episodesJSONL)
	types := map[string]string{"episode_index": "int64", "length": "int64"}
	content, err := store.ReadFile(ctx, d.Bytes, episodesJSONL, maxLines)
	if err != nil {
		return err
	}
	return eachLine(episodesJSONL, content, func(_ int, line []byte) error {
		err := eachMember("", line, func(k string, v json.RawMessage) error {
			t.addValues(k, types[k], string(v))
			return nil
		})
		t.rows++
		return err
	})
}

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

// EpisodeTable is the table of episodes with every column that its files have, in the order of
// episode_index.
type EpisodeTable struct {
	Columns []EpisodeColumn         `json:"columns"`
	Data    EpisodeFiles            `json:"data"`   // the data file of each episode
	Videos  map[string]EpisodeFiles `json:"videos"` // the same for each camera of videos
}

// EpisodeColumn is one column.
type EpisodeColumn struct {
	Name string `json:"name"`
	// "int64", "string", "list<string>" …; "" where the values alone tell.
	Type string `json:"type"`
	// A JSON array with a value an episode. It is text because it may hold NaN, as Python's json
	// writes and reads it.
	Values string `json:"values"`
}

// EpisodeFiles names a file an episode, each name once.
type EpisodeFiles struct {
	Names []string `json:"names"` // relative to the dataset's root
	Of    []int32  `json:"of"`    // into Names; nil where episode i has the i-th
}

// InfoJSON is meta/info.json as it is.
func (d *Dataset) InfoJSON(ctx context.Context) (json.RawMessage, error) {
	b, err := store.ReadFile(ctx, d.Bytes, infoPath, maxJSON)
	if err == nil {
		b, err = checkJSON(infoPath, b)
	}
	return b, robocache.At(err, robocache.Where{"file": infoPath})
}

// EpisodeTable reads the whole table. Statistics of episodes stay out, as in lerobot's own class:
// they are most of the bytes. Row numbers of the dataset are by our count, which is theirs in every
// sound set; v2 gets the columns that v3 finds files by.
func (d *Dataset) EpisodeTable(ctx context.Context) (t *EpisodeTable, err error) {
	defer crash.Recover("lerobot episodes", &err)
	t = &EpisodeTable{Videos: map[string]EpisodeFiles{}}
	all := &textColumns{types: map[string]string{}, values: map[string][]string{}}
	if d.raw.major == 2 {
		if err := d.tableV2(ctx, all); err != nil {
			return t, err
		}
	} else {
		if err := d.tableV3(
			ctx,
			all,
			func(c string) bool { return !strings.HasPrefix(c, "stats/") },
		); err != nil {
			return t, err
		}
	}
	n, rows := d.eps.n(), d.eps.rows
	if all.rows != rows {
		return nil, changed(fmt.Sprintf("%d rows", rows), fmt.Sprint(all.rows))
	}
	for _, c := range all.names {
		t.Columns = append(
			t.Columns,
			EpisodeColumn{
				c,
				all.types[c],
				jsonArray(reader.Permute(pad(all.values[c], rows), d.paths.perm)),
			},
		)
	}
	if k := slices.IndexFunc(
		t.Columns,
		func(c EpisodeColumn) bool { return c.Name == "episode_index" },
	); k >= 0 {
		var ids []float64 // pandas may have written them so
		if json.Unmarshal([]byte(t.Columns[k].Values), &ids) != nil || len(ids) != n {
			return nil, changed(fmt.Sprintf("%d numbers", n), fmt.Sprint(len(ids)))
		}
		for i, id := range ids {
			if int64(id) != d.eps.dataID(i) {
				return nil, changed(
					fmt.Sprintf("episode %d in place %d", d.eps.id(i), i),
					fmt.Sprint(int64(id)),
				)
			}
		}
	}
	row := func(name string, each func(i int) int64) {
		setColumn(t, name, "int64", n, true, func(i int) any { return each(i) })
	}
	row("dataset_from_index", func(i int) int64 { return d.eps.from[i] })
	row("dataset_to_index", func(i int) int64 { return d.eps.from[i+1] })
	row("length", func(i int) int64 { return int64(d.eps.length[i]) })
	texts, err := d.episodeTasks(ctx)
	if err != nil {
		return t, err
	}
	setColumn(
		t,
		"tasks",
		"list<string>",
		n,
		d.raw.major == 2,
		func(i int) any { return texts.of(i) },
	)
	data := func(i int) place { f, _ := d.tab.fileOf(i); return d.dataPlace(f) }
	setColumn(t, "data/chunk_index", "int64", n, true, func(i int) any { return data(i).chunk })
	setColumn(t, "data/file_index", "int64", n, true, func(i int) any { return data(i).number() })
	t.Data = files(d.paths.data[0], d.tab.files(), d.filesOf(d.eps.file), d.dataPlace)
	for i := range d.About.Features {
		c := d.cams[d.About.Features[i].Key]
		if c == nil {
			continue
		}
		at := func(i int32) place { return d.placeOf(c.cols.files[i], c.key) }
		t.Videos[c.key] = files(c.templates[0], len(c.cols.files), d.filesOf(c.cols.file), at)
		col := "videos/" + c.key + "/"
		setColumn(
			t,
			col+"chunk_index",
			"int64",
			n,
			false,
			func(i int) any { return at(c.fileOf(i)).chunk },
		)
		setColumn(
			t,
			col+"file_index",
			"int64",
			n,
			false,
			func(i int) any { return at(c.fileOf(i)).number() },
		)
		if d.raw.major == 2 { // each episode has an mp4 of its own
			setColumn(t, col+"from_timestamp", "float64", n, false, func(int) any { return 0.0 })
			setColumn(
				t,
				col+"to_timestamp",
				"float64",
				n,
				false,
				func(i int) any { return float64(d.eps.length[i]) / d.raw.fps.Float() },
			)
		}
	}
	return t, nil
}

// changed says that the table of episodes is not the one that Open read.
func changed(want, got string) error {
	return robocache.Malformed("lerobot", robocache.Where{"file": "meta/episodes"}, "").
		Expected(want+", as when the dataset was opened", got).WithHint("open it again")
}

// number is the file's own: v2 has a file an episode.
func (p place) number() int64 { return max(p.file, p.episode) }

// setColumn adds a column; where the files have it, it stays as it is unless over says otherwise.
func setColumn(t *EpisodeTable, name, typ string, n int, over bool, value func(i int) any) {
	k := slices.IndexFunc(t.Columns, func(c EpisodeColumn) bool { return c.Name == name })
	if k >= 0 && !over {
		return
	}
	v := make([]string, n)
	for i := range v {
		b, err := json.Marshal(value(i))
		if err != nil {
			b = []byte("null")
		}
		v[i] = string(b)
	}
	c := EpisodeColumn{name, typ, jsonArray(v)}
	if k < 0 {
		t.Columns = append(t.Columns, c)
	} else {
		t.Columns[k] = c
	}
}

func jsonArray(values []string) string { return "[" + strings.Join(values, ",") + "]" }

// filesOf is nil where episode i has file i.
func (d *Dataset) filesOf(file []int32) []int32 {
	if d.raw.major == 2 {
		return nil
	}
	return file
}

// files expands a template for each of n files.
func files(template string, n int, of []int32, at func(int32) place) EpisodeFiles {
	f := EpisodeFiles{Names: make([]string, n), Of: of}
	for i := range f.Names {
		f.Names[i], _ = expand(template, at(int32(i))) // checked at Open
	}
	return f
}

// textColumns are columns as JSON texts. One that some files or lines lack is null there.
type textColumns struct {
	names  []string
	types  map[string]string
	values map[string][]string
	rows   int // of the files or lines before
}

// add takes values of a column from row c.rows on, or from those that it has.
func (c *textColumns) add(name, typ string, values ...string) {
	if old, known := c.types[name]; !known {
		c.names, c.types[name] = append(c.names, name), typ
	} else if old != typ {
		c.types[name] = "" // 0 may be an integer in one file
	}
	c.values[name] = append(pad(c.values[name], c.rows), values...)
}

// pad brings a column to n rows with nulls.
func pad(v []string, n int) []string {
	for len(v) < n {
		v = append(v, "null")
	}
	return v
}

// tableV3 reads the columns of the Parquet files that are wanted.
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
				if !kept(top.Name) ||
					slices.ContainsFunc(tops, func(n *pq.Node) bool { return n.Name == top.Name }) {
					continue
				}
				if odd := slices.IndexFunc(
					top.Leaves(nil),
					func(l *pq.Node) bool { return l.Type == pq.Int96 || l.Type == pq.FixedLenByteArray },
				); odd >= 0 {
					d.notice(
						warn(
							"episodes-columns",
							name,
							"the column "+top.Name+" is left out: its values have a type that is not read here",
							"write it as numbers or text",
						),
					)
					continue
				}
				tops, leaves = append(tops, top), top.Leaves(leaves)
				t.add(top.Name, typeName(top)) // also of a file without rows
			}
			return leaves, nil
		},
		func(r robocache.Ranged, f *pq.File, g int) error {
			for _, top := range tops {
				v, err := pq.ReadJSON(ctx, r, f, g, top, nil, tableLimit)
				if err := robocache.At(
					err,
					robocache.Where{"row_group": g, "column": top.Name},
				); err != nil {
					return err
				}
				t.add(top.Name, typeName(top), v...)
			}
			t.rows += int(f.Groups[g].Rows)
			return nil
		},
	); err != nil {
		return err
	}
	return nil
}

// typeName says what a column holds: numbers, texts, and lists of them; "" for records.
func typeName(n *pq.Node) string {
	if n.Group() {
		if n.Note != pq.List || len(n.Children) != 1 {
			return ""
		}
		n = n.Children[0]
		if n.Group() && len(n.Children) == 1 {
			n = n.Children[0]
		}
		if inner := typeName(n); inner != "" {
			return "list<" + inner + ">"
		}
		return ""
	}
	if t := pq.DType(n); t != robocache.InvalidDType {
		return t.String()
	}
	return ""
}

// tableV2 reads meta/episodes.jsonl: every key that its lines have.
func (d *Dataset) tableV2(ctx context.Context, t *textColumns) (err error) {
	defer robocache.LocateIn(&err, "file", episodesJSONL)
	types := map[string]string{"episode_index": "int64", "length": "int64"}
	content, err := store.ReadFile(ctx, d.Bytes, episodesJSONL, maxLines)
	if err != nil {
		return err
	}
	return lines(episodesJSONL, content, func(_ int, line []byte) error {
		err := object("", line, func(k string, v json.RawMessage) error {
			t.add(k, types[k], string(v))
			return nil
		})
		t.rows++
		return err
	})
}

package edit

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/columns"
)

// Added describes a feature that no source has. Its values are a column of a file, or one constant
// for all rows.
type Added struct {
	File string `json:"file,omitempty"`
	Sum  string `json:"sha256,omitempty"` // checksum of the file
	Name string `json:"column,omitempty"` // column in the file
	// constant: a number, true or false, a text, or a list of numbers
	Is json.RawMessage `json:"value,omitempty"`
	// Rows holds the plan's episodes at the time when the feature was added. The file has one row
	// for each of their rows.
	Rows []Episode `json:"rows,omitempty"`
	// Indices are the numbers of these episodes. The column episode_index of the file refers to
	// them. If empty, episodes are numbered by position.
	Indices []int64 `json:"episode_indices,omitempty"`
}

// addedColumn holds the values of an added feature.
type addedColumn struct {
	dtype      robocache.DType
	shape      []int
	data       []byte              // values of all rows, or the one constant
	text       []string            // replaces data if the feature is text
	runs       map[[2]int]addedRun // by source and episode
	isConstant bool
}

// addedRun maps the rows of a source episode to a column. The value of episodeRow is in columnRow,
// and the values of the next rows follow it.
type addedRun struct{ episodeRow, columnRow int }

func (c *addedColumn) featureKind() robocache.Kind {
	if c.text != nil {
		return robocache.KindText
	}
	return robocache.KindNumeric
}

// addFeature adds a new feature to the plan.
func (e *editor) addFeature(ctx context.Context, v *Verb) error {
	if len(v.Features) != 1 || v.From == "" {
		return misuse(
			nil,
			"add needs one key and the source of its values",
			robocache.Option("values")+": a file (.parquet, .npy) or a constant",
		)
	}
	key := v.Features[0]
	if err := checkFeatureName(key); err != nil {
		return err
	}
	if slices.ContainsFunc(e.plan.Keys, func(k Key) bool { return k.Key == key }) {
		return misuse(
			robocache.Where{"stream": key},
			"add: the dataset already has a feature of this name",
			"another name, or remove or rename that one first",
		)
	}
	a := &Added{}
	ext := strings.ToLower(filepath.Ext(v.From))
	switch {
	case ext == ".npy" || ext == ".parquet":
		a.File = v.From
		a.Name = key
		a.Rows = slices.Clone(e.plan.Episodes)
		a.Indices = e.plan.episodeNumbers(e.srcs)
		b, err := os.ReadFile(v.From)
		if err := robocache.At(err, robocache.Where{"file": v.From}); err != nil {
			return err
		}
		sum := sha256.Sum256(b)
		a.Sum = hex.EncodeToString(sum[:])
	case json.Valid([]byte(v.From)):
		a.Is = json.RawMessage(v.From)
	default:
		var err error
		if a.Is, err = json.Marshal(v.From); err != nil {
			return err
		}
	}
	// Read the values now, so that errors in them are reported before anything is written.
	if _, err := a.readColumn(ctx); err != nil {
		return err
	}
	e.plan.Keys = append(e.plan.Keys, Key{Key: key, From: make([]string, len(e.srcs)), Added: a})
	return nil
}

// readColumn reads the values of the feature. The file must have the checksum that was planned.
func (a *Added) readColumn(ctx context.Context) (_ *addedColumn, err error) {
	if a.File == "" {
		return a.parseConstant()
	}
	defer robocache.LocateIn(&err, "file", a.File)
	b, err := os.ReadFile(a.File)
	if err != nil {
		return nil, err
	}
	if sum := sha256.Sum256(b); hex.EncodeToString(sum[:]) != a.Sum {
		return nil, misuse(nil, "add: the file is not the one that was planned", "plan again")
	}
	total := 0
	column := &addedColumn{runs: map[[2]int]addedRun{}}
	starts := make([]int, len(a.Rows))
	for i, p := range a.Rows {
		column.runs[[2]int{p.Source, p.Episode}] = addedRun{p.From, total}
		starts[i] = total
		total += p.To - p.From
	}
	table, err := columns.Parse(ctx, a.File, b, a.Name)
	if err != nil {
		return nil, err
	}
	if table.Rows != total {
		return nil, robocache.Misuse("edit", robocache.Where{"column": a.Name}, "add: rows").
			Expected(fmt.Sprint(total), fmt.Sprint(table.Rows))
	}
	order, err := a.matchRows(table, starts, total)
	if err != nil {
		return nil, err
	}
	column.dtype, column.shape = table.DType, table.Shape
	if table.Text != nil {
		column.text = make([]string, total)
		for i, row := range order {
			column.text[row] = table.Text[i]
		}
		column.dtype = robocache.String
		column.shape = []int{1}
		return column, nil
	}
	size := len(table.Data) / max(1, total)
	column.data = make([]byte, len(table.Data))
	for i, row := range order {
		copy(column.data[row*size:(row+1)*size], table.Data[i*size:])
	}
	return column, nil
}

// matchRows returns the dataset row of each row of a table. Rows are matched by index, by episode
// and frame, or by order. Each dataset row must occur exactly once. starts holds the first dataset
// row of each episode.
func (a *Added) matchRows(t *columns.Table, starts []int, total int) ([]int, error) {
	known := robocache.Info{Episodes: len(a.Rows)}
	known.NumberEpisodes(a.Indices)
	out := make([]int, total)
	seen := make([]bool, total)
	for i := range out {
		row := int64(i)
		switch {
		case t.Index != nil:
			row = t.Index[i]
		case t.Episode != nil:
			e, k := t.Episode[i], t.Frame[i]
			position, err := known.EpisodePosition(e)
			if err != nil || k < 0 || k >= int64(a.Rows[position].To-a.Rows[position].From) {
				return nil, misuse(
					robocache.Where{"row": i},
					fmt.Sprintf("add: the dataset has no frame %d of an episode %d", k, e),
					"",
				)
			}
			row = int64(starts[position]) + k
		}
		if row < 0 || row >= int64(total) || seen[row] {
			return nil, misuse(
				robocache.Where{"row": i},
				fmt.Sprintf(
					"add: the index %d is outside the %d rows, or occurs twice",
					row,
					total,
				),
				"name every row exactly once",
			)
		}
		out[i] = int(row)
		seen[row] = true
	}
	return out, nil
}

// parseConstant parses the constant. Whole numbers become int64; other numbers become float32.
func (a *Added) parseConstant() (*addedColumn, error) {
	column := &addedColumn{isConstant: true, shape: []int{1}}
	var v any
	if err := json.Unmarshal(a.Is, &v); err != nil {
		return nil, err
	}
	appendNumber := func(x any) error {
		f, ok := x.(float64)
		if !ok {
			return misuse(
				nil,
				"add: a constant is a number, true, false, a text, or a list of numbers",
				"",
			)
		}
		column.data = binary.LittleEndian.AppendUint32(column.data, math.Float32bits(float32(f)))
		return nil
	}
	switch v := v.(type) {
	case bool:
		column.dtype = robocache.Bool
		column.data = []byte{0}
		if v {
			column.data[0] = 1
		}
	case string:
		column.dtype = robocache.String
		column.text = []string{v}
	case float64:
		column.dtype = robocache.Float32
		isExact := v == math.Trunc(v) && math.Abs(v) < 1<<53
		writtenAsInteger := !strings.ContainsAny(string(a.Is), ".eE")
		if isExact && writtenAsInteger {
			column.dtype = robocache.Int64
			column.data = binary.LittleEndian.AppendUint64(
				nil,
				uint64(int64(v)),
			)
			break
		}
		if err := appendNumber(v); err != nil {
			return nil, err
		}
	case []any:
		column.dtype = robocache.Float32
		column.shape = []int{len(v)}
		for _, x := range v {
			if err := appendNumber(x); err != nil {
				return nil, err
			}
		}
	default: // appendNumber returns the error
		if err := appendNumber(v); err != nil {
			return nil, err
		}
	}
	if len(column.data) == 0 && column.text == nil {
		return nil, misuse(nil, "add: a constant without values", "")
	}
	return column, nil
}

// rowIndex returns the row of the column that holds the value of row r of the result.
func (c *addedColumn) rowIndex(v *planDataset, r robocache.Row) (int, error) {
	if c.isConstant {
		return 0, nil
	}
	p, err := v.planEpisode(r.Episode)
	if err != nil {
		return 0, err
	}
	run := c.runs[[2]int{p.Source, p.Episode}]
	return run.columnRow + p.From + r.Index - run.episodeRow, nil
}

func (c *addedColumn) gatherRows(v *planDataset, rows []robocache.Row, dst []byte) error {
	size := len(dst) / max(1, len(rows))
	for i, r := range rows {
		row, err := c.rowIndex(v, r)
		if err != nil {
			return err
		}
		copy(dst[i*size:(i+1)*size], c.data[row*size:])
	}
	return nil
}

func (c *addedColumn) gatherTexts(v *planDataset, rows []robocache.Row) ([]string, error) {
	out := make([]string, len(rows))
	for i, r := range rows {
		row, err := c.rowIndex(v, r)
		if err != nil {
			return nil, err
		}
		out[i] = c.text[row]
	}
	return out, nil
}

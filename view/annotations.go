package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
	"github.com/goatnote-inc/robocache/store"
)

const maxAnnotations = 64 << 20 // bytes of a file

// annotation is a text about the rows [From, To) of an episode, or about that time in seconds.
type annotation struct {
	Episode int64   `json:"episode"` // robocache.Episode.Index
	From    float64 `json:"from"`
	To      float64 `json:"to"`
	Text    string  `json:"text"`
	Style   string  `json:"style,omitempty"` // kept for the file's other users
}

// annotations are the annotations of a dataset, in the form of the file that `edit annotate` reads.
type annotations struct {
	inSeconds bool
	list      []annotation
}

// annotatesSeconds reports whether annotations name seconds: streams with their own clocks have no
// common rows.
func annotatesSeconds(info *robocache.Info) bool {
	return slices.ContainsFunc(
		info.Features,
		func(f robocache.Feature) bool { return f.Clock != "" },
	)
}

// columnNames returns the columns of the file.
func (a *annotations) columnNames() []string {
	if a.inSeconds {
		return []string{"episode", "from_s", "to_s", "text", "style"}
	}
	return []string{"episode", "from", "to", "text", "style"}
}

// isValid reports whether the range of an annotation is one of the file's unit.
func (a *annotations) isValid(x *annotation) bool {
	isRange := x.From >= 0 && x.To > x.From && x.To <= math.MaxInt32
	isWhole := x.From == math.Trunc(x.From) && x.To == math.Trunc(x.To)
	return x.Episode >= 0 && isRange && (a.inSeconds || isWhole)
}

// parse reads the content of a file. Columns may have any order; style may be absent.
func (a *annotations) parse(content []byte) error {
	r := csv.NewReader(bytes.NewReader(content))
	names, err := r.Read()
	if errors.Is(err, io.EOF) {
		return nil
	}
	bad := func(row int, format string, args ...any) error {
		return robocache.Malformed("annotations", robocache.Where{"line": row}, format, args...).
			WithHint("a CSV file with the columns %v", a.columnNames()[:4])
	}
	if err != nil {
		return bad(1, "the file is no CSV: %v", err)
	}
	places := make([]int, 5)
	for i, name := range a.columnNames() {
		places[i] = slices.Index(names, name)
		if places[i] < 0 && name != "style" {
			return bad(1, "the columns are %q, without %q", names, name)
		}
	}
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		line, _ := r.FieldPos(0)
		if err != nil {
			return bad(line, "the file is no CSV: %v", err)
		}
		episode, err := strconv.ParseInt(cells[places[0]], 10, 64)
		from, err1 := strconv.ParseFloat(cells[places[1]], 64)
		to, err2 := strconv.ParseFloat(cells[places[2]], 64)
		x := annotation{Episode: episode, From: from, To: to, Text: cells[places[3]]}
		if places[4] >= 0 {
			x.Style = cells[places[4]]
		}
		if errors.Join(err, err1, err2) != nil || !a.isValid(&x) {
			return bad(line, "the range is %q", cells)
		}
		a.list = append(a.list, x)
	}
}

// bytes returns the content of the file, sorted by episode and time.
func (a *annotations) bytes() ([]byte, error) {
	slices.SortStableFunc(a.list, func(x, y annotation) int {
		return cmp.Or(cmp.Compare(x.Episode, y.Episode), cmp.Compare(x.From, y.From),
			cmp.Compare(x.To, y.To))
	})
	var out bytes.Buffer
	w := csv.NewWriter(&out)
	hasStyle := slices.ContainsFunc(a.list, func(x annotation) bool { return x.Style != "" })
	width := 4
	if hasStyle {
		width = 5
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
	err := w.Write(a.columnNames()[:width])
	for _, x := range a.list {
		cells := []string{
			strconv.FormatInt(x.Episode, 10), number(x.From), number(x.To), x.Text, x.Style,
		}
		err = errors.Join(err, w.Write(cells[:width]))
	}
	w.Flush()
	return out.Bytes(), errors.Join(err, w.Error())
}

// replace removes the annotation with the range of x, and adds x if it has a text.
func (a *annotations) replace(x annotation) {
	isSame := func(y annotation) bool {
		return y.Episode == x.Episode && y.From == x.From && y.To == x.To
	}
	a.list = slices.DeleteFunc(slices.Clone(a.list), isSame)
	if x.Text != "" {
		a.list = append(a.list, x)
	}
}

// readAnnotations reads the file of annotations. A file that does not exist has none.
func readAnnotations(ctx context.Context, path string, a *annotations) (err error) {
	defer robocache.LocateIn(&err, "file", path)
	s, err := store.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer func() { _ = store.Close(s) }()
	content, err := store.ReadFile(ctx, s, filepath.Base(path), maxAnnotations)
	if errors.Is(err, robocache.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	return a.parse(content)
}

// serveAnnotations answers the annotations as JSON, or with csv=1 as the file.
func (s *Server) serveAnnotations(q *request) error {
	s.flagsMu.Lock()
	defer s.flagsMu.Unlock()
	if q.URL.Query().Get("csv") == "1" {
		content, err := s.annotations.bytes()
		if err != nil {
			return err
		}
		q.Header().Set("Content-Type", "text/csv; charset=utf-8")
		_, err = q.Write(content)
		return err
	}
	return q.writeAnnotations(s.annotations)
}

func (q *request) writeAnnotations(a *annotations) error {
	return q.writeJSON(map[string]any{
		"seconds":     a.inSeconds,
		"annotations": append([]annotation{}, a.list...),
	})
}

// writeAnnotation sets or removes an annotation of the first dataset. It writes the file of
// annotations if the caller named one. An empty text removes.
func (s *Server) writeAnnotation(q *request) error {
	body, err := readBody(q, "annotations")
	if err != nil {
		return err
	}
	var in annotation
	if err := json.Unmarshal(body, &in); err != nil {
		return jsonmeta.OptionError("annotations", "", body, err)
	}
	x := s.sets[0]
	position, err := x.info.EpisodePosition(in.Episode)
	if err != nil {
		return notFound("no such episode")
	}
	s.flagsMu.Lock()
	defer s.flagsMu.Unlock()
	next := *s.annotations
	if !next.isValid(&in) || !next.inSeconds && int(in.To) > x.ds.Len(position) {
		return robocache.Misuse("annotations", robocache.Where{"episode": in.Episode},
			"the range from %v to %v is not in the episode", in.From, in.To)
	}
	next.replace(in)
	content, err := next.bytes()
	if err != nil {
		return err
	}
	if s.opt.Annotations != "" {
		err := store.WriteFile(q.Context(), filepath.Dir(s.opt.Annotations),
			filepath.Base(s.opt.Annotations), content)
		if err != nil {
			return err
		}
	}
	s.annotations = &next
	return q.writeAnnotations(&next)
}

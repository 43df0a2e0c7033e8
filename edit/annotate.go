package edit

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/write"
	"github.com/goatnote-inc/robocache/internal/jsonmeta"
)

// Annotation is a text about rows of an episode. A range is in rows, or in seconds from the first
// row. Without an end it reaches to the end of the episode.
type Annotation struct {
	Episode int64    `json:"episode"`
	From    *int     `json:"from,omitempty"`
	To      *int     `json:"to,omitempty"` // not included
	FromS   *float64 `json:"from_s,omitempty"`
	ToS     *float64 `json:"to_s,omitempty"`
	Text    string   `json:"text,omitempty"`  // default: Verb.Text
	Style   string   `json:"style,omitempty"` // default: Verb.Key
	// Role is user or assistant, of texts at single rows; default: that of the style.
	Role string `json:"role,omitempty"`
	// Camera is the key of the camera to which the text refers. Styles vqa and trace need one.
	Camera string `json:"camera,omitempty"`
	line   int    // line of a CSV file; 0 if the annotation is not from one
}

// Language is a text of rows [From, To) of the source episode.
type Language struct {
	Style  string `json:"style"`
	Role   string `json:"role,omitempty"` // "": that of the style
	Camera string `json:"camera,omitempty"`
	From   int    `json:"from"`
	To     int    `json:"to"`
	Text   string `json:"text"`
}

// languageStyle describes a style of LeRobot's language columns.
type languageStyle struct {
	column, role string // role "": each text names its own
	hasCamera    bool   // the texts refer to a camera
	isWhole      bool   // the texts are alternatives for the whole episode
}

// isEvent reports whether the texts of the style belong to single rows.
func (s *languageStyle) isEvent() bool { return s.column == write.LanguageEvents }

// languageStyles are the styles of LeRobot's language columns.
var languageStyles = map[string]languageStyle{
	"subtask":      {column: write.LanguagePersistent, role: assistantRole},
	"plan":         {column: write.LanguagePersistent, role: assistantRole},
	"memory":       {column: write.LanguagePersistent, role: assistantRole},
	"motion":       {column: write.LanguagePersistent, role: assistantRole},
	"task_aug":     {column: write.LanguagePersistent, role: userRole, isWhole: true},
	"interjection": {column: write.LanguageEvents, role: userRole},
	"vqa":          {column: write.LanguageEvents, hasCamera: true},
	"trace":        {column: write.LanguageEvents, role: assistantRole, hasCamera: true},
}

// Roles of texts.
const (
	userRole      = "user"
	assistantRole = "assistant"
)

// cameraPrefix begins the key of every camera to which texts of LeRobot refer.
const cameraPrefix = "observation.images."

// annotateRows adds texts about ranges of rows to the plan.
func (e *editor) annotateRows(ctx context.Context, v *Verb) error {
	list := v.Ranges
	if v.From != "" {
		b, err := os.ReadFile(v.From)
		if err == nil {
			list, err = parseAnnotations(b)
		}
		if err != nil {
			return withFile(err, v.From)
		}
	}
	if len(list) == 0 {
		return misuse(nil, "annotate without ranges", "name a .csv or .json file with ranges")
	}
	info := e.numberedInfo()
	added := map[int][]resolvedAnnotation{}
	for i := range list {
		position, x, err := e.resolveAnnotation(ctx, info, v, &list[i])
		if err != nil {
			return withFile(robocache.At(err, list[i].inputLocation(i)), v.From)
		}
		x.item = i
		added[position] = append(added[position], x)
	}
	for _, position := range slices.Sorted(maps.Keys(added)) {
		if err := checkOverlaps(added[position], list); err != nil {
			return withFile(err, v.From)
		}
		e.plan.Episodes[position].addLanguage(added[position], v.Append)
	}
	for _, key := range []string{write.LanguagePersistent, write.LanguageEvents} {
		if !slices.ContainsFunc(e.plan.Keys, func(k Key) bool { return k.Key == key }) {
			e.plan.Keys = append(e.plan.Keys, Key{Key: key, From: make([]string, len(e.srcs))})
		}
	}
	return nil
}

// inputLocation returns the location of an annotation in its file or list, for messages.
func (a *Annotation) inputLocation(item int) robocache.Where {
	if a.line > 0 {
		return robocache.Where{"episode": a.Episode, "line": a.line}
	}
	return robocache.Where{"episode": a.Episode, "item": item}
}

// withFile adds the name of a file to err. It returns err unchanged if the name is empty.
func withFile(err error, file string) error {
	if file == "" {
		return err
	}
	return robocache.At(err, robocache.Where{"file": file})
}

// resolvedAnnotation is an annotation with its rows in the source.
type resolvedAnnotation struct {
	Language
	item int // index in the input
}

// addLanguage adds texts. They replace the texts of their styles, unless keepsOthers is set.
func (p *Episode) addLanguage(added []resolvedAnnotation, keepsOthers bool) {
	p.Language, p.Replaced = slices.Clone(p.Language), slices.Clone(p.Replaced)
	for _, x := range added {
		if keepsOthers {
			break
		}
		p.Language = slices.DeleteFunc(p.Language, func(old Language) bool {
			return old.Style == x.Style
		})
		p.Replaced = append(p.Replaced, x.Style)
	}
	slices.Sort(p.Replaced)
	p.Replaced = slices.Compact(p.Replaced)
	for _, x := range added {
		p.Language = append(p.Language, x.Language)
	}
}

// resolveAnnotation returns the position of the episode of an annotation, and its rows in the
// source.
func (e *editor) resolveAnnotation(
	ctx context.Context, info *robocache.Info, v *Verb, a *Annotation,
) (position int, x resolvedAnnotation, err error) {
	x.Style = cmp.Or(a.Style, v.Key, "subtask")
	x.Text = cmp.Or(a.Text, v.Text)
	style, ok := languageStyles[x.Style]
	switch {
	case !ok:
		return 0, x, misuse(nil, "no style "+strconv.Quote(x.Style),
			robocache.Nearest(x.Style, slices.Sorted(maps.Keys(languageStyles))))
	case x.Text == "":
		return 0, x, misuse(nil, "the range has no text",
			"add a column text, or pass "+robocache.Option("label"))
	}
	if position, err = info.EpisodePosition(a.Episode); err != nil {
		return 0, x, err
	}
	if err := x.addView(&style, a, e.cameraKeys(position)); err != nil {
		return 0, x, err
	}
	p := &e.plan.Episodes[position]
	n := p.To - p.From
	from, to := 0, n
	if style.isEvent() {
		to = -1 // means that no end is given
	}
	resolveBound := func(rows *int, seconds *float64, at *int) error {
		switch {
		case rows != nil:
			*at = *rows
		case seconds != nil && *seconds < 0:
			return misuse(nil, fmt.Sprintf("%v s is before the first row", *seconds), "")
		case seconds != nil:
			times, err := e.srcs[p.Source].Times(ctx, p.Episode, "")
			if err != nil {
				return err
			}
			times = times[p.From:p.To]
			*at = sort.Search(n, func(i int) bool {
				return float64(times[i]-times[0])/1e9 >= *seconds-1e-6
			})
		}
		return nil
	}
	err = errors.Join(resolveBound(a.From, a.FromS, &from), resolveBound(a.To, a.ToS, &to))
	if err != nil {
		return 0, x, err
	}
	if to < 0 {
		to = from + 1 // an event without an end has one row
	}
	if from < 0 || from >= to || to > n {
		return 0, x, misuse(nil, fmt.Sprintf("rows %d to %d of %d", from, to, n),
			"from is less than to, and to is not included")
	}
	if style.isWhole && (from > 0 || to < n) {
		return 0, x, misuse(nil, fmt.Sprintf("rows %d to %d of %d for the style %s", from, to, n,
			x.Style), "Leave out the range: the texts are alternatives for the whole episode.")
	}
	x.From, x.To = p.From+from, p.From+to
	return position, x, nil
}

// cameraKeys returns the cameras of a planned episode to which texts can refer.
func (e *editor) cameraKeys(position int) (keys []string) {
	source := e.plan.Episodes[position].Source
	for _, k := range e.plan.Keys {
		if source >= len(k.From) || !strings.HasPrefix(k.Key, cameraPrefix) {
			continue
		}
		f := e.srcs[source].Info().Feature(k.From[source])
		if f != nil && (f.Kind == robocache.KindVideo || f.Kind == robocache.KindImage) {
			keys = append(keys, k.Key)
		}
	}
	return keys
}

// addView sets the role and the camera of a text. cameras are those of the episode.
func (x *Language) addView(style *languageStyle, a *Annotation, cameras []string) error {
	x.Role, x.Camera = a.Role, a.Camera
	roles := []string{userRole, assistantRole}
	switch {
	case a.Role != "" && !slices.Contains(roles, a.Role):
		return misuse(nil, "no role "+strconv.Quote(a.Role), robocache.Nearest(a.Role, roles))
	case a.Role != "" && !style.isEvent():
		return misuse(nil, "texts of the style "+x.Style+" have the role "+style.role,
			"Leave out the role.")
	case a.Role == "" && style.role == "":
		return misuse(nil, "the style "+x.Style+" needs a role",
			"Add a column role: user for a question, assistant for its answer.")
	case a.Camera != "" && !style.hasCamera:
		return misuse(nil, "texts of the style "+x.Style+" refer to no camera",
			"Leave out the camera.")
	case !style.hasCamera:
		return nil
	}
	switch {
	case slices.Contains(cameras, a.Camera):
		return nil
	case a.Camera == "":
		return misuse(nil, "the style "+x.Style+" needs a camera",
			"Add a column camera with one of: "+strings.Join(cameras, ", "))
	}
	return misuse(robocache.Where{"stream": a.Camera},
		"there is no camera of this name that begins with "+cameraPrefix,
		robocache.Nearest(a.Camera, cameras))
}

// checkOverlaps returns an error if two ranges of one style, role and camera of an episode overlap.
// It sorts all by these and the first row.
func checkOverlaps(all []resolvedAnnotation, list []Annotation) error {
	slices.SortStableFunc(all, func(x, y resolvedAnnotation) int {
		return cmp.Or(strings.Compare(x.Style, y.Style), strings.Compare(x.Role, y.Role),
			strings.Compare(x.Camera, y.Camera), cmp.Compare(x.From, y.From))
	})
	for i := 1; i < len(all); i++ {
		before, x := all[i-1], all[i]
		isOther := x.Style != before.Style || x.Role != before.Role || x.Camera != before.Camera
		if isOther || x.From >= before.To || languageStyles[x.Style].isWhole {
			continue
		}
		other := list[before.item].inputLocation(before.item)
		delete(other, "episode")
		return misuse(list[x.item].inputLocation(x.item),
			fmt.Sprintf("the range %q overlaps the range %q of %s", x.Text, before.Text, other),
			"ranges of one style must not overlap")
	}
	return nil
}

// parseAnnotations parses annotations: a JSON list, the JSON output of 'robocache find', or CSV
// with a header.
func parseAnnotations(b []byte) (list []Annotation, err error) {
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	switch first := bytes.TrimSpace(b); {
	case bytes.HasPrefix(first, []byte("[")):
		var all []listedAnnotation
		if err := jsonmeta.Unmarshal("edit", b, &all); err != nil {
			return nil, err
		}
		if err := checkMembers(b); err != nil {
			return nil, err
		}
		return annotationsOf(all)
	case bytes.HasPrefix(first, []byte("{")):
		var found struct {
			Ranges []listedAnnotation `json:"ranges"`
		}
		if err := jsonmeta.Unmarshal("edit", b, &found); err != nil {
			return nil, err
		}
		return annotationsOf(found.Ranges)
	}
	r := csv.NewReader(bytes.NewReader(b))
	r.TrimLeadingSpace = true
	header, err := r.Read()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, malformedCSV(r, err)
	}
	for _, name := range header {
		if !slices.Contains(annotationColumns, name) {
			return nil, misuse(robocache.Where{"line": 1}, "no column "+strconv.Quote(name),
				robocache.Nearest(name, annotationColumns))
		}
	}
	for {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, malformedCSV(r, err)
		}
		a, err := parseCSVLine(header, record)
		a.line, _ = r.FieldPos(0)
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"line": a.line})
		}
		list = append(list, a)
	}
}

// listedAnnotation is an annotation in JSON.
type listedAnnotation struct {
	Annotation
	Episode *int64 `json:"episode"`
}

// checkMembers returns an error if an object of a JSON list has a member that is neither one of an
// annotation nor one of the ranges of find.
func checkMembers(b []byte) error {
	var list []map[string]json.RawMessage
	if err := json.Unmarshal(b, &list); err != nil {
		return err
	}
	known := append(slices.Clone(annotationColumns), "episode_length", "score")
	for i, members := range list {
		for _, name := range slices.Sorted(maps.Keys(members)) {
			if !slices.Contains(known, strings.ToLower(name)) {
				return misuse(robocache.Where{"item": i}, "no member "+strconv.Quote(name),
					robocache.Nearest(name, annotationColumns))
			}
		}
	}
	return nil
}

// annotationsOf returns annotations that name their episodes.
func annotationsOf(all []listedAnnotation) ([]Annotation, error) {
	list := make([]Annotation, len(all))
	for i, a := range all {
		if a.Episode == nil {
			return nil, misuse(robocache.Where{"item": i}, "the range names no episode", "")
		}
		list[i] = a.Annotation
		list[i].Episode = *a.Episode
	}
	return list, nil
}

// annotationColumns are the columns of a CSV file.
var annotationColumns = []string{
	"episode", "from", "to", "from_s", "to_s", "text", "style", "role", "camera",
}

// malformedCSV returns the error for a line that is not valid CSV.
func malformedCSV(r *csv.Reader, err error) error {
	line := 0
	var parse *csv.ParseError
	if errors.As(err, &parse) {
		line = parse.Line
	}
	return robocache.Malformed("edit", robocache.Where{"line": line}, "").WithCause(err)
}

// parseCSVLine parses a line of a CSV file. An empty field counts as absent.
func parseCSVLine(header, record []string) (a Annotation, err error) {
	hasEpisode := false
	for i, name := range header {
		text := strings.TrimSpace(record[i])
		if text == "" {
			continue
		}
		var whole int64
		var seconds float64
		switch name {
		case "text":
			a.Text = record[i]
			continue
		case "style":
			a.Style = text
			continue
		case "role":
			a.Role = text
			continue
		case "camera":
			a.Camera = text
			continue
		case "from_s", "to_s":
			seconds, err = strconv.ParseFloat(text, 64)
		default:
			whole, err = strconv.ParseInt(text, 10, 64)
		}
		isFinite := seconds-seconds == 0 // false for NaN and infinity
		if err != nil || !isFinite {
			return a, misuse(robocache.Where{"column": name}, "no number: "+strconv.Quote(text), "")
		}
		row := int(whole)
		switch name {
		case "episode":
			a.Episode, hasEpisode = whole, true
		case "from":
			a.From = &row
		case "to":
			a.To = &row
		case "from_s":
			a.FromS = &seconds
		case "to_s":
			a.ToS = &seconds
		}
	}
	if !hasEpisode {
		return a, misuse(robocache.Where{"column": "episode"}, "the line names no episode", "")
	}
	return a, nil
}

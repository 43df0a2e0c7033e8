package calvin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/internal/crash"
	"github.com/goatnote-inc/robocache/store"
)

const (
	maxAnnotations = 1 << 30 // bytes of auto_lang_ann.npy, which is large because of embeddings
	textKey        = "language_instruction"
	taskKey        = "language_task"
	embeddingKey   = "language_embedding"

	usualAnnotations = "lang_annotations"
)

// note is one annotated window.
type note struct {
	split       string
	first, last int64 // frames, both inclusive
	text, task  string
	number      int  // position in the file of its split, and of its embedding
	outside     bool // not inside a run
	run         int32
}

// language contains the annotations of a dataset.
type language struct {
	notes      []note // in file order, training before validation
	byStart    map[string][]int32
	longest    map[string]int64  // number of frames of the longest window, by split
	embeddings map[string][]byte // embeddings, by split
	embRow     int               // bytes of an embedding; 0 if there are none
	embType    robocache.DType
	bytes      int64
}

// readLanguage reads the annotations of each split that has some.
func (d *Dataset) readLanguage(ctx context.Context, folder string) error {
	l := &language{
		byStart:    map[string][]int32{},
		longest:    map[string]int64{},
		embeddings: map[string][]byte{},
	}
	seen := map[string]bool{}
	for _, e := range d.episodes {
		if seen[e.split] {
			continue
		}
		seen[e.split] = true
		name := inSplit(e.split, folder+"/auto_lang_ann.npy")
		b, err := store.ReadFile(ctx, d.Bytes, name, maxAnnotations)
		if errors.Is(err, robocache.ErrNotFound) && folder == usualAnnotations {
			continue // an explicitly named folder must exist
		}
		if err != nil {
			return err
		}
		if err := robocache.At(l.parseNotes(e.split, b), robocache.Where{"file": name}); err !=
			nil {
			return err
		}
	}
	for _, split := range splits {
		name := inSplit(split, "scene_info.npy")
		if _, err := d.Bytes.Stat(ctx, name); err == nil && seen[split] {
			d.addFinding(
				robocache.Finding{
					Severity: robocache.SeverityInfo,
					Code:     objectsSkipped,
					Where:    robocache.Where{"file": name},
					Message:  "Python objects; the file is not read",
				},
			)
		}
	}
	if len(l.notes) == 0 {
		return nil
	}
	l.sortNotes()
	d.checkNotes(l)
	d.language = l
	texts := map[string]bool{}
	for _, n := range l.notes {
		if !texts[n.text] {
			texts[n.text] = true
			d.About.Tasks = append(
				d.About.Tasks,
				robocache.Task{Index: int64(len(d.About.Tasks)), Text: n.text},
			)
		}
	}
	for _, key := range []string{textKey, taskKey} {
		d.About.Features = append(
			d.About.Features,
			robocache.Feature{
				Key:   key,
				Kind:  robocache.KindText,
				DType: robocache.String,
				Shape: []int{1},
				FPS:   d.rate,
			},
		)
	}
	if l.embRow > 0 {
		d.About.Features = append(
			d.About.Features,
			robocache.Feature{
				Key:           embeddingKey,
				Kind:          robocache.KindNumeric,
				DType:         l.embType,
				Shape:         []int{l.embRow / l.embType.Size()},
				FPS:           d.rate,
				Interpolation: "nearest",
				Masked:        true,
			},
		)
	}
	for i := range d.About.Features {
		f := &d.About.Features[i]
		if s := d.streams[f.Key]; s != nil {
			s.feature = f
		} else {
			d.streams[f.Key] = &stream{feature: f, member: -1}
		}
	}
	return nil
}

func badLanguage(format string, args ...any) error {
	return robocache.Malformed("calvin language", nil, format, args...)
}

// parseNotes parses auto_lang_ann.npy: {"language": {"ann", "task", "emb"}, "info": {"indx"}}.
func (l *language) parseNotes(split string, b []byte) error {
	a, err := npy.DecodeObjects(b)
	if err != nil {
		return err
	}
	var root, lang, info *npy.Dict
	if len(a.Objects) == 1 {
		root, _ = a.Objects[0].(*npy.Dict)
	}
	if root == nil {
		return badLanguage("not a dict")
	}
	for name, d := range map[string]**npy.Dict{"language": &lang, "info": &info} {
		v, _ := root.Get(name)
		if *d, _ = v.(*npy.Dict); *d == nil {
			return badLanguage("no %q", name)
		}
	}
	ann, err := textList(lang, "ann")
	if err != nil {
		return err
	}
	task, err := textList(lang, "task")
	if err != nil {
		return err
	}
	spans, err := parseWindows(info)
	if err != nil {
		return err
	}
	if ann == nil || len(ann) != len(spans) || task != nil && len(task) != len(spans) {
		return badLanguage("%d texts and %d tasks for %d windows", len(ann), len(task), len(spans))
	}
	if task == nil {
		task = make([]string, len(spans))
	}
	for i, s := range spans {
		if s[0] < 0 || s[1] < s[0] || s[1]-s[0] >= maxRun {
			return badLanguage("window %d has frames %d to %d", i, s[0], s[1])
		}
		l.notes = append(
			l.notes,
			note{split: split, first: s[0], last: s[1], text: ann[i], task: task[i], number: i},
		)
		l.bytes += int64(len(ann[i])+len(task[i])) + 96
	}
	v, _ := lang.Get("emb")
	e, ok := v.(*npy.Array)
	if !ok || e.Type.DType() == robocache.InvalidDType || len(e.Shape) < 2 ||
		e.Shape[0] != len(spans) ||
		len(spans) == 0 ||
		len(e.Data) == 0 {
		return nil // some copies have no embeddings
	}
	row, t := len(e.Data)/len(spans), e.Type.DType()
	if l.embRow != 0 && (l.embRow != row || l.embType != t) {
		return badLanguage("embeddings of %d bytes here, of %d in the other split", row, l.embRow)
	}
	l.embRow, l.embType, l.embeddings[split] = row, t, e.Data
	l.bytes += int64(len(e.Data))
	return nil
}

// textList returns a list or an array of texts, or nil if there is none.
func textList(d *npy.Dict, name string) ([]string, error) {
	v, ok := d.Get(name)
	if !ok {
		return nil, nil
	}
	items := itemsOf(v)
	if a, ok := v.(*npy.Array); ok && a.Type.Kind != 'O' {
		if s, ok := a.Strings(); ok {
			return s, nil
		}
	}
	if l, ok := v.(*npy.List); items == nil && v != nil && (!ok || len(l.Items) > 0) {
		return nil, badLanguage("%q is not a list of texts", name)
	}
	out := make([]string, len(items))
	for i, item := range items {
		// Some copies store each text in a list of one element.
		if inner := itemsOf(item); len(inner) == 1 {
			item = inner[0]
		}
		if out[i], ok = item.(string); !ok {
			return nil, badLanguage("%q: entry %d is not a text", name, i)
		}
	}
	return out, nil
}

func itemsOf(v any) []any {
	switch v := v.(type) {
	case *npy.List:
		return v.Items
	case npy.Tuple:
		return v
	case *npy.Array:
		return v.Objects
	}
	return nil
}

// parseWindows parses info.indx: (first, last) pairs as tuples, lists or an array.
func parseWindows(info *npy.Dict) ([][2]int64, error) {
	v, _ := info.Get("indx")
	if a, ok := v.(*npy.Array); ok && a.Type.Kind != 'O' {
		out, ok := integerPairs(a)
		if !ok {
			return nil, badLanguage("indx is %s %v, not [n, 2] integers", a.Type, a.Shape)
		}
		return out, nil
	}
	items := itemsOf(v)
	out := make([][2]int64, len(items))
	for i, item := range items {
		pair := itemsOf(item)
		if a, ok := item.(*npy.Array); ok && a.Type.Kind != 'O' {
			n, _ := a.Int64s()
			for _, x := range n {
				pair = append(pair, x)
			}
		}
		var ok1, ok2 bool
		if len(pair) == 2 {
			out[i][0], ok1 = pair[0].(int64)
			out[i][1], ok2 = pair[1].(int64)
		}
		if !ok1 || !ok2 {
			return nil, badLanguage("indx: entry %d is not a pair of integers", i)
		}
	}
	return out, nil
}

func (l *language) sortNotes() {
	for i, n := range l.notes {
		l.byStart[n.split] = append(l.byStart[n.split], int32(i))
		l.longest[n.split] = max(l.longest[n.split], n.last-n.first+1)
	}
	for _, v := range l.byStart {
		sort.SliceStable(
			v,
			func(i, k int) bool { return l.notes[v[i]].first < l.notes[v[k]].first },
		)
	}
}

// noteAt returns the index of the annotation of a frame (calvin.C4), or -1 if there is none.
func (l *language) noteAt(split string, frame int64) int {
	v := l.byStart[split]
	i := sort.Search(len(v), func(i int) bool { return l.notes[v[i]].first > frame }) - 1
	for ; i >= 0; i-- {
		n := &l.notes[v[i]]
		if n.last >= frame {
			return int(v[i])
		}
		if n.first <= frame-l.longest[split] {
			break
		}
	}
	return -1
}

// noteOf returns the index of the annotation of an episode's row, or -1.
func (l *language) noteOf(e episode, row int) int {
	if e.note >= 0 {
		return e.note
	}
	return l.noteAt(e.split, e.first+int64(row))
}

// taskTexts returns the distinct texts of an episode in the order of their windows.
func (l *language) taskTexts(e episode) []string {
	if e.note >= 0 {
		return []string{l.notes[e.note].text}
	}
	var out []string
	for _, i := range l.byStart[e.split] {
		n := &l.notes[i]
		if n.first > e.last {
			break
		}
		if n.last >= e.first && !slices.Contains(out, n.text) {
			out = append(out, n.text)
		}
	}
	return out
}

func (l *language) copyEmbedding(e episode, row int, dst []byte) {
	clear(dst)
	if i := l.noteOf(e, row); i >= 0 {
		n := &l.notes[i]
		if b := l.embeddings[n.split]; b != nil {
			copy(dst, b[n.number*l.embRow:])
		}
	}
}

// checkNotes reports windows that are not inside a run.
func (d *Dataset) checkNotes(l *language) {
	runs := map[string][]episode{}
	for _, e := range d.episodes {
		runs[e.split] = append(runs[e.split], e)
	}
	for _, r := range runs {
		slices.SortFunc(r, func(a, b episode) int { return cmp.Compare(a.first, b.first) })
	}
	for i := range l.notes {
		n := &l.notes[i]
		r := runs[n.split]
		k := sort.Search(len(r), func(k int) bool { return r[k].first > n.first }) - 1
		if k < 0 || r[k].last < n.last {
			d.addFinding(robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "window-outside-run",
				Where: robocache.Where{
					"file": inSplit(n.split, "lang_annotations/auto_lang_ann.npy"),
					"row":  n.number,
				},
				Message: fmt.Sprintf("frames %d to %d are not in one run", n.first, n.last),
			})
			n.outside = true
			continue
		}
		n.run = r[k].run
	}
}

// cutWindows makes the annotated windows the episodes.
func (d *Dataset) cutWindows() error {
	if d.language == nil {
		return robocache.Misuse(
			"calvin open",
			nil,
			"%s, and there are no annotations",
			robocache.Option("options", "language", "episodes"),
		)
	}
	d.episodes = d.episodes[:0]
	for i := range d.language.notes {
		n := &d.language.notes[i]
		if !n.outside {
			d.episodes = append(
				d.episodes,
				episode{split: n.split, first: n.first, last: n.last, note: i, run: n.run},
			)
		}
	}
	return nil
}

// Text returns the rows of a text stream, or of "task".
func (d *Dataset) Text(
	ctx context.Context,
	key string,
	rows []robocache.Row,
) (out []string, err error) {
	defer crash.Recover("calvin text", &err)
	if key != "task" {
		if _, err := d.streamOfKind(key, robocache.KindText); err != nil {
			return out, err
		}
	}
	out = make([]string, len(rows))
	for i, r := range rows {
		if err := d.checkRow(r); err != nil {
			return out, err
		}
		if d.language == nil {
			continue
		}
		if k := d.language.noteOf(d.episodes[r.Episode], r.Index); k >= 0 {
			if n := &d.language.notes[k]; key == taskKey {
				out[i] = n.task
			} else {
				out[i] = n.text
			}
		}
	}
	return out, ctx.Err()
}

// Valid sets valid to 1 for rows that have a value. Only rows of embeddings can lack one.
func (d *Dataset) Valid(
	ctx context.Context,
	key string,
	rows []robocache.Row,
	valid []uint8,
) (err error) {
	defer crash.Recover("calvin valid", &err)
	if d.About.Feature(key) == nil {
		return op.NoStream(key)
	}
	if err := op.Room(key, "bytes", len(rows), len(valid)); err != nil {
		return err
	}
	reader.AllValid(valid)
	for i, r := range rows {
		if err := d.checkRow(r); err != nil {
			return err
		}
		if key != embeddingKey {
			continue
		}
		k := d.language.noteOf(d.episodes[r.Episode], r.Index)
		if k < 0 || d.language.embeddings[d.language.notes[k].split] == nil {
			valid[i] = 0
		}
	}
	return ctx.Err()
}

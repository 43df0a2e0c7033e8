package h5set

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/h5"
	"github.com/goatnote-inc/robocache/format/internal/reader"
)

const (
	// remoteForms is the number of episodes of a remote set whose data sets are opened to find the
	// most common shapes. For the other episodes only the names are listed, because each header may
	// need a request.
	remoteForms = 16
	// maxStreams limits the streams of a set: the union is large if the files have nothing in
	// common.
	maxStreams = 10_000
	// representatives is the number of episodes that may be used to describe one stream.
	representatives = 3
)

// formID is an index into survey.forms. It identifies the type and row shape of a data set.
type formID int32

// unknownForm is the form of a data set that was not opened.
const unknownForm formID = 0

// surveyEntry is a data set of an episode in the survey.
type surveyEntry struct {
	path int32 // index into survey.paths
	form formID
	rows int64
}

// survey lists the data sets of all episodes. Schema computes the union of the streams and their
// most common shapes from it.
type survey struct {
	mu       sync.Mutex
	paths    []string
	forms    []string
	pathIDs  map[string]int32
	formIDs  map[string]formID
	episodes [][]surveyEntry
}

// internText returns the number of a text, and adds the text if it is new.
func internText[T ~int32](mu *sync.Mutex, text string, ids map[string]T, list *[]string) T {
	mu.Lock()
	defer mu.Unlock()
	n, ok := ids[text]
	if !ok {
		n = T(len(*list))
		ids[strings.Clone(text)] = n
		*list = append(*list, strings.Clone(text))
	}
	return n
}

// formOf describes the type and the row shape of a data set. Data sets of one form make one stream:
// see Stream.matchDataset.
func formOf(d *h5.Dataset) string {
	if len(d.Shape) == 0 || d.Null {
		return "no rows"
	}
	t, dims := elementOf(d)
	switch {
	case d.Type.Class == h5.Compound:
		var b strings.Builder
		for _, m := range d.Type.Fields {
			fmt.Fprintf(&b, "%s %d %s;", m.Name, m.Offset, m.Type)
		}
		return b.String() + fmt.Sprint(dims)
	case d.Type.Class == h5.Text || d.Type.IsText:
		return "text " + fmt.Sprint(dims)
	case t == robocache.Uint8 && len(dims) == 1 && dims[0] >= leastPadded:
		// encoded images are padded to the longest row of the file, so the length differs
		return "bytes"
	}
	return d.Type.String() + fmt.Sprint(dims)
}

// leastPadded is the minimum length of a row of bytes that may be an encoded image.
const leastPadded = 64

// surveyEpisodes lists the data sets of all episodes, several episodes in parallel.
func (s *Set) surveyEpisodes(ctx context.Context) (*survey, error) {
	v := &survey{
		pathIDs: map[string]int32{}, formIDs: map[string]formID{},
		forms: []string{""}, episodes: make([][]surveyEntry, len(s.Episodes)),
	}
	failed := make([]error, len(s.Episodes))
	var readable []int
	for i := range s.Episodes {
		if s.Episodes[i].Length > 0 {
			readable = append(readable, i)
		}
	}
	visit := func(episodes []int, known map[string]bool) error {
		return Each(
			ctx,
			s.About.Format+" open",
			len(episodes),
			func(ctx context.Context, k int) error {
				i := episodes[k]
				var err error
				if failed[i], err = Tolerate(func() error {
					list, err := s.listDataSets(ctx, &s.Episodes[i], v, known)
					if err != nil {
						return err
					}
					v.episodes[i] = list // nil marks an unreadable episode
					return nil
				}); err != nil {
					return err
				}
				return nil
			},
		)
	}
	opened := readable
	if robocache.IsRemote(s.Bytes) && len(readable) > remoteForms {
		opened = make([]int, remoteForms)
		for k := range opened {
			opened[k] = readable[k*len(readable)/remoteForms]
		}
	}
	if err := visit(opened, nil); err != nil {
		return nil, err
	}
	if len(opened) < len(readable) {
		known := map[string]bool{}
		for _, p := range v.paths {
			known[p] = true
		}
		rest := slices.DeleteFunc(slices.Clone(readable), func(i int) bool {
			_, done := slices.BinarySearch(opened, i)
			return done
		})
		if err := visit(rest, known); err != nil {
			return nil, err
		}
	}
	for i, err := range failed {
		if err != nil {
			e := &s.Episodes[i]
			s.Lose(
				"unreadable-episode",
				robocache.Where{"episode": e.Index, "file": e.File.Name(), "pointer": e.Path},
				err,
				"fetch the file again, or write the episode again",
			)
		}
	}
	return v, nil
}

// listDataSets lists the data sets of an episode.
func (s *Set) listDataSets(
	ctx context.Context,
	e *Episode,
	v *survey,
	known map[string]bool,
) (out []surveyEntry, err error) {
	w, err := e.Walker(ctx)
	if err != nil {
		return out, err
	}
	w.known = known
	if err := w.Walk(func(path string, o *h5.Object) error {
		entry := surveyEntry{path: internText(&v.mu, path, v.pathIDs, &v.paths)}
		if o != nil {
			err, failed := Tolerate(func() error {
				d, err := o.Dataset(ctx, w.pathInFile(path))
				if err != nil {
					return err
				}
				entry.form, entry.rows = internText(&v.mu, formOf(d), v.formIDs, &v.forms), d.Rows()
				return nil
			})
			if failed != nil {
				return failed
			}
			if err != nil {
				entry.rows = -1 // present, with unknown contents
			}
		}
		out = append(out, entry)
		return nil
	}, nil); err != nil {
		return out, err
	}
	return out, nil
}

// Schema computes the streams: the union over all episodes, each with its most common type and
// shape. An episode that lacks a stream gets a finding, and its rows of that stream cannot be read.
func (s *Set) Schema(ctx context.Context, key func(path string) string) error {
	v, err := s.surveyEpisodes(ctx)
	if err != nil {
		return err
	}
	s.findSuffix(v)
	usual := s.usualForms(v)
	model := s.chooseModel(v, usual)
	if model < 0 {
		return nil
	}
	e := &s.Episodes[model]
	walker, err := e.Walker(ctx)
	if err != nil {
		return err
	}
	if s.rowTimes, err = s.findRowTimes(walker, e); err != nil {
		return err
	}
	// The model episode describes all streams that it has in the usual form. Other episodes
	// describe the rest.
	differs := map[string]bool{}
	has := map[string]bool{}
	for _, x := range v.episodes[model] {
		path := v.paths[x.path]
		has[path] = true
		c, ok := s.asCandidate(v, e, x)
		if u, known := usual[x.path]; known && (!ok || c != u.choice) {
			differs[path] = true
		}
	}
	err, failed := Tolerate(func() error {
		streams, found, err := s.describeEpisode(
			ctx,
			e,
			key,
			func(path string) bool { return !differs[path] },
		)
		if err != nil {
			return err
		}
		s.Streams, s.About.Findings = streams, append(s.About.Findings, found...)
		return nil
	})
	if failed != nil {
		return failed
	}
	if err != nil {
		s.Lose(
			"unreadable-episode",
			robocache.Where{"episode": e.Index, "file": e.File.Name(), "pointer": e.Path},
			err,
			"fetch the file again, or write the episode again",
		)
	}
	if err := s.describeOthers(
		ctx,
		v,
		usual,
		key,
		func(path string) bool { return !has[path] || differs[path] || err != nil },
	); err != nil {
		return err
	}
	s.markAbsent(v)
	return s.findUnusedClocks(ctx, v)
}

// findSuffix finds the name suffix of timestamps if no attribute names it. It looks for a data set
// whose length differs from the episode's, but equals the length of a second data set with that
// suffix.
func (s *Set) findSuffix(v *survey) {
	for i := range s.Episodes {
		if s.Suffix != "" {
			return
		}
		e := &s.Episodes[i]
		rows := map[string]int64{}
		for _, x := range v.episodes[i] {
			if x.form != unknownForm {
				rows[v.paths[x.path]] = x.rows
			}
		}
		for path, n := range rows {
			times, ok := rows[path+TimestampsSuffix]
			if ok && times == n && n != int64(e.Length) && !(e.Acts && n == int64(e.Length)+1) {
				s.Suffix = TimestampsSuffix
			}
		}
	}
}

// choice is the form of a data set in some episodes. after is set if the data set has one row more
// than the actions.
type choice struct {
	form  formID
	after bool
}

// asCandidate returns the form of an entry, and whether its data set can be a stream of the
// episode.
func (s *Set) asCandidate(v *survey, e *Episode, x surveyEntry) (c choice, ok bool) {
	if x.form == unknownForm {
		return c, false
	}
	n := int64(e.Length)
	path := v.paths[x.path]
	c = choice{x.form, e.Acts && x.rows == n+1 && !s.isConstant(path, x.rows)}
	if x.rows == n || c.after || s.isConstant(path, x.rows) || e.Others && x.rows > 1 {
		return c, true
	}
	_, timed := v.pathIDs[v.paths[x.path]+s.Suffix]
	return c, s.Suffix != "" && timed
}

// isConstant reports whether a data set of some rows holds for all rows of its episode.
func (s *Set) isConstant(path string, rows int64) bool {
	return rows == 1 && s.Constant != nil && s.Constant(path)
}

// usual is the most common form of the data sets at a path, and the first episodes that have it.
type usual struct {
	choice
	episodes []int
}

// usualForms returns the most common form of each path among the episodes in which it can be a
// stream. If two forms are equally common, the form of the earlier episode is used.
func (s *Set) usualForms(v *survey) map[int32]usual {
	type place struct {
		path int32
		choice
	}
	votes := map[place]int{}
	seen := map[place][]int{}
	for i := range v.episodes {
		for _, x := range v.episodes[i] {
			c, ok := s.asCandidate(v, &s.Episodes[i], x)
			if !ok {
				continue
			}
			p := place{x.path, c}
			if votes[p]++; len(seen[p]) < representatives {
				seen[p] = append(seen[p], i)
			}
		}
	}
	out := map[int32]usual{}
	for p, n := range votes {
		have, ok := out[p.path]
		before := votes[place{p.path, have.choice}]
		if !ok || n > before || n == before && seen[p][0] < have.episodes[0] {
			out[p.path] = usual{p.choice, seen[p]}
		}
	}
	return out
}

// chooseModel returns the first episode with the most streams in their usual form, or -1 if no
// episode can be read.
func (s *Set) chooseModel(v *survey, usual map[int32]usual) int {
	best, most := -1, -1
	for i := range v.episodes {
		e := &s.Episodes[i]
		if e.Length == 0 || v.episodes[i] == nil {
			continue
		}
		n := 0
		for _, x := range v.episodes[i] {
			if c, ok := s.asCandidate(v, e, x); ok && c == usual[x.path].choice {
				n++
			}
		}
		if n > most {
			best, most = i, n
		}
	}
	return best
}

// describeOthers adds the streams that the model does not have in their usual form.
func (s *Set) describeOthers(
	ctx context.Context,
	v *survey,
	usual map[int32]usual,
	key func(path string) string,
	missing func(path string) bool,
) error {
	var paths []int32
	for p := range usual {
		if missing(v.paths[p]) {
			paths = append(paths, p)
		}
	}
	if len(paths) == 0 {
		return nil
	}
	slices.SortFunc(paths, func(a, b int32) int { return strings.Compare(v.paths[a], v.paths[b]) })
	done := map[string]bool{}
	for round := range representatives {
		byEpisode := map[int]map[string]bool{}
		var episodes []int
		for _, p := range paths {
			if done[v.paths[p]] || round >= len(usual[p].episodes) {
				continue
			}
			i := usual[p].episodes[round]
			if byEpisode[i] == nil {
				byEpisode[i] = map[string]bool{}
				episodes = append(episodes, i)
			}
			byEpisode[i][v.paths[p]] = true
		}
		for _, i := range episodes {
			if _, err := Tolerate(func() error { // a failure is reported when the episode is read
				streams, found, err := s.describeEpisode(
					ctx,
					&s.Episodes[i],
					key,
					func(path string) bool { return byEpisode[i][path] },
				)
				if err != nil {
					return err
				}
				for k := range streams {
					if strings.HasPrefix(streams[k].Clock, "rows") && streams[k].times == "" {
						streams[k].Clock = streams[k].Key // no other stream has this length
					}
					done[streams[k].Path] = true
				}
				s.Streams = append(s.Streams, streams...)
				s.About.Findings = append(s.About.Findings, found...)
				return nil
			}); err != nil {
				return err
			}
		}
	}
	if len(s.Streams) > maxStreams {
		return robocache.ResourceLimit(s.About.Format, nil, "too many streams").
			Expected(fmt.Sprintf("at most %d", maxStreams), fmt.Sprint(len(s.Streams))).
			WithHint("open the files one by one: they have few streams in common")
	}
	order := func(path string) string { return strings.ReplaceAll(path, "/", "\x00") }
	slices.SortStableFunc(
		s.Streams,
		func(a, b Stream) int { return strings.Compare(order(a.Path), order(b.Path)) },
	)
	return nil
}

// markAbsent records which episodes lack which streams, with a finding for each.
func (s *Set) markAbsent(v *survey) {
	byPath := map[int32][]int{}
	for i := range s.Streams {
		p := v.pathIDs[s.Streams[i].Path]
		byPath[p] = append(byPath[p], i)
	}
	var lacking reader.LackingFindings
	for i := range v.episodes {
		e := &s.Episodes[i]
		if e.Length == 0 || v.episodes[i] == nil {
			continue
		}
		has := map[int32]bool{}
		for _, x := range v.episodes[i] {
			has[x.path] = true
		}
		for k := range s.Streams {
			st := &s.Streams[k]
			if has[v.pathIDs[st.Path]] {
				continue
			}
			st.absent = append(st.absent, int32(i))
			where := robocache.Where{"episode": e.Index, "file": e.File.Name(), "stream": st.Key}
			lacking.Add(&st.Feature, where, st.Path)
		}
	}
	s.About.Findings = append(s.About.Findings, lacking.List()...)
}

// lacksStream reports whether an episode lacks a stream.
func (s *Set) lacksStream(stream, episode int) bool {
	_, ok := slices.BinarySearch(s.Streams[stream].absent, int32(episode))
	return ok
}

// Lacks reports whether an episode lacks a stream that other episodes have.
func (s *Set) Lacks(episode int, key string) bool {
	i, ok := s.byKey[key]
	return ok && s.lacksStream(i, episode)
}

package arrivals

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/query"
	"github.com/goatnote-inc/robocache/store"
)

// Listing is a dataset as it is at a moment.
type Listing struct {
	Dataset robocache.Dataset
	// IsByFile reports that episodes are identified by their files. Their indices in the log are
	// then the numbers of their arrivals, because the index of a file in a folder can change.
	IsByFile bool
	// Waiting describes episodes that are not complete, such as a recording without a footer.
	Waiting  []string
	episodes []listedEpisode
	position map[string]int // of the complete episodes in the dataset, by ID
}

type listedEpisode struct {
	id       string
	position int
	rows     int64
	bytes    int64
}

// incompleteCodes are the findings of opening that show that a file is not complete.
var incompleteCodes = []string{"recovered", "unreadable-recording", "unreadable-episode"}

// List returns the complete episodes of a dataset, in its order.
func List(ctx context.Context, ds robocache.Dataset) (*Listing, error) {
	info := ds.Info()
	recording := ds.Capabilities().Recording
	l := &Listing{
		Dataset:  ds,
		IsByFile: recording != nil,
		position: make(map[string]int, info.Episodes),
	}
	incomplete := map[int]string{}
	incompleteFiles := map[string]string{}
	for i := range info.Findings {
		f := &info.Findings[i]
		if !f.Lost && !slices.Contains(incompleteCodes, f.Code) {
			continue
		}
		if position, named := info.PositionIn(f.Where); named && position >= 0 {
			incomplete[position] = f.Message
		} else if file, ok := f.Where["file"].(string); ok {
			incompleteFiles[file] = f.Message
		}
	}
	sizes := fileSizes(ctx, ds, l.IsByFile)
	parts := map[string]int{} // episodes of each file so far
	for position := range info.Episodes {
		e := listedEpisode{position: position, rows: int64(ds.Len(position))}
		name := "episode " + strconv.FormatInt(info.EpisodeIndex(position), 10)
		e.id = strconv.FormatInt(info.EpisodeIndex(position), 10)
		why, isIncomplete := incomplete[position]
		if l.IsByFile {
			name = recording(position)
			e.id, e.bytes = name, sizes[name]
			if n := parts[name]; n > 0 {
				e.id += "#" + strconv.Itoa(n)
			}
			parts[name]++
			for file, message := range incompleteFiles {
				if file == name || strings.HasPrefix(file, name+"/") {
					why, isIncomplete = message, true
				}
			}
		}
		if isIncomplete {
			l.Waiting = append(l.Waiting, name+": "+why)
			continue
		}
		if _, twice := l.position[e.id]; twice {
			return nil, robocache.Malformed("follow", robocache.Where{"dataset": info.URI},
				"two episodes have the index %s", e.id).
				WithHint("Renumber them: %s does.", robocache.Command("convert"))
		}
		l.position[e.id] = position
		l.episodes = append(l.episodes, e)
	}
	return l, nil
}

// fileSizes returns the sizes of the files of a dataset by name, or nil if they are unknown.
func fileSizes(ctx context.Context, ds robocache.Dataset, isByFile bool) map[string]int64 {
	s, ok := robocache.As[store.Source](ds)
	if !ok || !isByFile {
		return nil
	}
	files, err := s.Store().List(ctx, "")
	if err != nil {
		return nil // the store cannot list: rows are compared alone
	}
	sizes := make(map[string]int64, len(files))
	for _, f := range files {
		sizes[f.Name] = f.Size
	}
	return sizes
}

// NewArrivals returns the episodes that the log does not hold yet, as arrivals at a time. Their
// terms are evaluated. Indices are set by Number.
func (l *Listing) NewArrivals(
	ctx context.Context, log *Log, terms Terms, now time.Time, threads int,
) ([]Arrival, error) {
	var list []Arrival
	var positions []int
	for _, e := range l.episodes {
		if _, known := log.Position(e.id); known {
			continue
		}
		a := Arrival{ID: e.id, Rows: e.rows, Bytes: e.bytes, Time: now.UnixNano()}
		if !l.IsByFile {
			a.Index = l.Dataset.Info().EpisodeIndex(e.position)
		}
		list, positions = append(list, a), append(positions, e.position)
	}
	if len(list) == 0 {
		return nil, nil
	}
	if terms.Policy != "" {
		for i := range list {
			version, err := policyVersion(ctx, l.Dataset, positions[i], terms.Policy)
			if err != nil {
				return nil, err
			}
			list[i].Version = version
		}
	}
	if terms.Where == "" {
		return list, nil
	}
	expression, err := query.Parse(terms.Where)
	if err != nil {
		return nil, err
	}
	bound, err := expression.Bind(ctx, l.Dataset, query.Options{Threads: threads})
	if err != nil {
		return nil, err
	}
	matching, err := bound.Matching(ctx, positions)
	if err != nil {
		return nil, err
	}
	for i := range list {
		_, isTrue := slices.BinarySearch(matching, positions[i])
		list[i].Fails = !isTrue
	}
	return list, nil
}

// Number removes from list the arrivals that the log holds already, and gives the others of files
// the next indices. The log must be locked by Update.
func (l *Listing) Number(log *Log, list []Arrival) []Arrival {
	next := int64(log.Len())
	list = slices.DeleteFunc(list, func(a Arrival) bool {
		_, known := log.Position(a.ID)
		return known
	})
	for i := range list {
		if l.IsByFile {
			list[i].Index = next + int64(i)
		}
	}
	return list
}

// policyVersion returns the policy version of an episode: the first number of a stream, or a note of
// its recording. It returns nil if the episode has none.
func policyVersion(
	ctx context.Context, ds robocache.Dataset, position int, key string,
) (*float64, error) {
	f := ds.Info().Feature(key)
	if f == nil {
		notes, ok := robocache.As[interface{ Notes(int) map[string]string }](ds)
		if !ok {
			return nil, robocache.Misuse("follow", robocache.Where{"stream": key},
				"%s: no stream of numbers and no note of recordings",
				robocache.Option("follow", "version", key)).
				WithHint("%s", robocache.Nearest(key, ds.Info().Keys()))
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(notes.Notes(position)[key]), 64)
		if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, nil
		}
		return &v, nil
	}
	if f.Kind != robocache.KindNumeric || f.Ragged() || f.Elements() < 1 {
		return nil, robocache.Misuse("follow", robocache.Where{"stream": key},
			"the policy version is no stream of numbers")
	}
	if ds.Len(position) == 0 || robocache.Lacks(ds, position, key) {
		return nil, nil
	}
	raw := make([]byte, f.RowBytes())
	err := ds.Gather(ctx, key, []robocache.Row{{Episode: position}}, raw)
	if err != nil {
		return nil, robocache.At(err, robocache.Where{"stream": key})
	}
	v := robocache.Float64s(nil, f.DType, raw)[0]
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, nil
	}
	return &v, nil
}

// View returns the dataset of a prefix of the arrivals, in their order. Closing it closes the
// dataset of the listing. A dataset that does not hold all arrivals as they were is ErrMalformed.
func (l *Listing) View(prefix []Arrival) (robocache.Dataset, error) {
	info := l.Dataset.Info()
	positions, indices := make([]int, len(prefix)), make([]int64, len(prefix))
	for i := range prefix {
		a := &prefix[i]
		where := robocache.Where{"dataset": info.URI, "episode": a.ID}
		position, ok := l.position[a.ID]
		if !ok {
			return nil, robocache.Malformed("follow", where,
				"an episode that had arrived is gone, or cannot be read any more").
				WithHint("Restore it. A new run with another log trains without it: %s.",
					robocache.Option("follow", "log", "FILE"))
		}
		if rows := int64(l.Dataset.Len(position)); rows != a.Rows {
			return nil, robocache.Malformed("follow", where,
				"an episode changed after its arrival").
				Expected(fmt.Sprintf("%d rows", a.Rows), fmt.Sprint(rows)).
				WithHint("Episodes of a growing dataset are written once. Start a new run with "+
					"another log: %s.", robocache.Option("follow", "log", "FILE"))
		}
		positions[i], indices[i] = position, a.Index
	}
	if err := l.checkSizes(prefix); err != nil {
		return nil, err
	}
	return robocache.Arrange(l.Dataset, positions, indices), nil
}

// checkSizes returns an error if the file of an arrival has another size than at its arrival.
func (l *Listing) checkSizes(prefix []Arrival) error {
	bytes := make(map[string]int64, len(l.episodes))
	for _, e := range l.episodes {
		bytes[e.id] = e.bytes
	}
	for i := range prefix {
		a := &prefix[i]
		if size := bytes[a.ID]; a.Bytes > 0 && size > 0 && size != a.Bytes {
			return robocache.Malformed("follow",
				robocache.Where{"dataset": l.Dataset.Info().URI, "file": a.ID},
				"a recording changed after its arrival").
				Expected(fmt.Sprintf("%d bytes", a.Bytes), fmt.Sprint(size)).
				WithHint("Recordings of a growing dataset are written once. Start a new run with "+
					"another log: %s.", robocache.Option("follow", "log", "FILE"))
		}
	}
	return nil
}

// Has reports whether the dataset holds all arrivals of a prefix.
func (l *Listing) Has(prefix []Arrival) bool {
	return !slices.ContainsFunc(prefix, func(a Arrival) bool {
		_, ok := l.position[a.ID]
		return !ok
	})
}

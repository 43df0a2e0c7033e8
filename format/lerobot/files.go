package lerobot

import (
	"context"
	"math"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/lerobot/internal/pq"
)

// DataFile describes one data file by its footer.
type DataFile struct {
	Path     string
	Bytes    int64
	Rows     int64
	Groups   []int64 // rows of each row group
	Episodes []int   // positions of the episodes that the metadata puts there, in order
	Columns  []string
	Creator  string
}

// DataFiles is the number of data files that the episodes table names.
func (d *Dataset) DataFiles() int { return d.tab.files() }

// DataFile reads the footer of the i-th data file.
func (d *Dataset) DataFile(ctx context.Context, i int) (out DataFile, err error) {
	defer guard("data file", &err)
	if i < 0 || i >= d.tab.files() {
		return DataFile{}, &robocache.Error{Class: robocache.ErrMisuse, Op: "lerobot", Msg: "no such data file"}
	}
	f, err := d.tab.footer(ctx, int32(i))
	if err != nil {
		return DataFile{}, err
	}
	out = DataFile{Path: f.name, Bytes: f.pq.Size, Rows: f.pq.Rows, Columns: columnNames(f.pq), Creator: f.pq.Creator, Groups: groupRows(f.pq)}
	for _, e := range d.tab.episodesOf(int32(i)) {
		out.Episodes = append(out.Episodes, int(e))
	}
	return out, nil
}

func groupRows(f *pq.File) []int64 {
	out := make([]int64, len(f.Groups))
	for i := range f.Groups {
		out[i] = f.Groups[i].Rows
	}
	return out
}

// CacheStats says what the table cache holds and did.
func (d *Dataset) CacheStats() CacheStats { return d.tab.cache.Stats() }

// Stats gives the counts.
func (c *cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Bytes, s.Budget = c.bytes, c.budget
	return s
}

// MemoryBytes is what the dataset holds besides its caches: the episodes table and what follows from it.
func (d *Dataset) MemoryBytes() int64 {
	n := d.eps.MemoryBytes()
	for _, c := range d.cams {
		n += int64(8*len(c.files) + 4*cap(c.byFile.episodes) + 4*cap(c.byFile.first))
	}
	return n + int64(4*cap(d.tab.byFile.episodes)+4*cap(d.tab.byFile.first))
}

// VideoFiles gives the paths of a camera's files, in the order of their numbers (v2: of the episodes). A file that is not there is NotFound.
func (d *Dataset) VideoFiles(ctx context.Context, key string) ([]string, error) {
	if _, err := d.get(key, robocache.KindVideo); err != nil {
		return nil, err
	}
	c := d.cams[key]
	out := make([]string, len(c.files))
	for i := range c.files {
		name, err := d.paths.find(ctx, c.templates, d.videoPlace(c, int32(i)))
		if err != nil {
			return nil, robocache.At(err, robocache.Where{"stream": key})
		}
		out[i] = name
	}
	return out, nil
}

// EpisodeVideo says where an episode's pictures of one camera lie.
type EpisodeVideo struct {
	Path     string
	From, To float64 // seconds, as declared; NaN where nothing is declared (v2 always)
	First    int     // ordinal of the first picture
	Pictures int     // rows from the first on that have a picture
	Exact    bool    // the file has as many pictures as its episodes have rows
}

// EpisodeVideo lays the episode's file out and says which pictures are its own.
func (d *Dataset) EpisodeVideo(ctx context.Context, episode int, key string) (out EpisodeVideo, err error) {
	defer guard("episode video", &err)
	if err := d.checkEpisode(episode); err != nil {
		return out, err
	}
	if _, err := d.get(key, robocache.KindVideo); err != nil {
		return out, err
	}
	c := d.cams[key]
	f, err := d.layout(ctx, c, episode)
	if err != nil {
		return out, err
	}
	out = EpisodeVideo{Path: f.path, From: math.NaN(), To: math.NaN(), Exact: f.exact}
	out.First, out.Pictures = f.of(int32(episode))
	if c.cols != nil {
		out.From, out.To = stampAt(c.cols.from, episode), stampAt(c.cols.to, episode)
	}
	return out, nil
}

func stampAt(s []float64, i int) float64 {
	if s == nil {
		return math.NaN()
	}
	return s[i]
}

// Joint is the start of an episode in a video file: where it is said to be and where its first picture is.
type Joint struct {
	Episode  int     // position
	Ordinal  int     // of its first picture
	Declared float64 // from_timestamp
	Actual   float64 // time of that picture
	Step     float64 // seconds since the picture before; NaN for the first
}

// Drift says how far the pictures of a video file are from the times that the metadata gives them.
type Drift struct {
	Path         string
	Pictures     int
	Rows         int64
	Max          float64 // largest |time of a picture − (from_timestamp + row/fps)|, seconds
	Episode, Row int     // where that is
	Over         int64   // rows more than half a frame off: a reader that looks up by time gives a neighbour there
	Joints       []Joint
}

// Drift measures the video file that holds an episode. In v2 every episode starts at 0.
func (d *Dataset) Drift(ctx context.Context, episode int, key string) (out Drift, err error) {
	defer guard("drift", &err)
	if err := d.checkEpisode(episode); err != nil {
		return out, err
	}
	if _, err := d.get(key, robocache.KindVideo); err != nil {
		return out, err
	}
	c := d.cams[key]
	f, err := d.layout(ctx, c, episode)
	if err != nil {
		return out, err
	}
	vf, err := d.lib.Acquire(ctx, f.path)
	if err != nil {
		return out, robocache.At(err, robocache.Where{"stream": key, "file": f.path})
	}
	defer vf.Release()
	ix := vf.Index
	out = Drift{Path: f.path, Pictures: ix.NumFrames()}
	fps := d.raw.fps.Float()
	for i, e := range f.episodes {
		from := 0.0
		if c.cols != nil {
			if from = stampAt(c.cols.from, int(e)); math.IsNaN(from) {
				continue
			}
		}
		out.Rows += int64(d.eps.length[e])
		first := int(f.first[i])
		for k := range int(f.span[i]) {
			off := math.Abs(float64(ix.PTS(first+k))/float64(ix.Timescale()) - (from + float64(k)/fps))
			if off > out.Max {
				out.Max, out.Episode, out.Row = off, int(e), k
			}
			if off > 0.5/fps {
				out.Over++
			}
		}
		if f.span[i] > 0 {
			j := Joint{Episode: int(e), Ordinal: first, Declared: from, Actual: float64(ix.PTS(first)) / float64(ix.Timescale()), Step: math.NaN()}
			if first > 0 {
				j.Step = float64(ix.PTS(first)-ix.PTS(first-1)) / float64(ix.Timescale())
			}
			out.Joints = append(out.Joints, j)
		}
	}
	return out, nil
}

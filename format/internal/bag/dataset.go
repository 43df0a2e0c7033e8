package bag

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/video"
)

// Dataset is a set of recordings. Each recording is divided into one or more episodes.
type Dataset struct {
	reader.Base
	opt       Options
	pool      *recordingPool
	topics    []*topic
	streams   []stream // parallel to About.Features
	byKey     map[string]int
	episodes  []episode
	rowCounts []atomic.Int64 // number of rows by the anchor's clock
	anchor    struct{ topic, clock int }
	task      taskSource
	layout    *Layout             // layout of recordings that RoboCache wrote
	notes     []map[string]string // notes of each recording

	tracks           *lru.Cache[trackKey, *track]
	blocks           *lru.Cache[blockKey, *block]
	videos           *lru.Cache[videoKey, *topicVideo]
	recordingNumbers func() map[string]int // recordings by name
	headerTimesBytes int64                 // bytes of topic.headerTimes
	lib              *video.Library

	mu               sync.Mutex
	noticed          []robocache.Finding
	recordedFindings map[string]bool // by code and place
}

var _ robocache.Dataset = (*Dataset)(nil)

// topic is a topic of the dataset, with one name and type, in any of its recordings.
type topic struct {
	name, typ, key string
	schema         *ros2.Schema
	dec            *ros2.Topic
	samples        [][]byte // the messages that determined the columns
	sampleLogs     []int64  // log times of samples
	fields         []ros2.Field
	clocks         []string     // see ros2.Topic.Clocks
	plans          []columnPlan // parallel to clocks
	manyRows       bool         // a message contains any number of rows
	hasHeader      bool         // messages have a header
	hasPublish     bool         // messages have a publish time
	latched        bool
	// header timestamps of each recording, if they were read during Open
	headerTimes  map[int][]int64
	lacksImages  bool        // video with messages that have no image
	noImages     bool        // video in which no message has an image
	restored     bool        // the field is that of the original dataset (see restoreFeature)
	clock        string      // clock by which the rows are ordered: Header, Publish or Log
	storageIndex []int       // index in each recording's topics; -1 means absent
	counts       []int64     // number of messages in each recording
	requested    atomic.Bool // a read needed the rows of the topic (see loadPlain)
}

// episode is a recording or a part of one.
type episode struct {
	rec      int
	whole    bool  // the episode is the whole recording; from and to are not used
	from, to int64 // log times, half-open interval
	err      error // set if the recording cannot be opened
}

// Len returns the number of rows of an episode.
func (d *Dataset) Len(ep int) int {
	if ep < 0 || ep >= len(d.rowCounts) {
		return 0
	}
	return int(d.rowCounts[ep].Load())
}

// openEpisode returns an episode. It fails the call if there is no such episode, or if its
// recording cannot be opened.
func (d *Dataset) openEpisode(ep int) *episode {
	guard.Check(op.Episode(len(d.episodes), ep))
	guard.Check(d.episodes[ep].err)
	return &d.episodes[ep]
}

// Episode returns the index, length and tasks of an episode.
func (d *Dataset) Episode(ctx context.Context, ep int) (_ robocache.Episode, err error) {
	defer guard.Recover("episode", &err)
	d.openEpisode(ep)
	return robocache.Episode{
		Position: ep,
		Index:    int64(ep),
		Length:   d.Len(ep),
		Tasks:    d.episodeTasks(ctx, ep),
	}, nil
}

// Recording returns the name of the recording that contains an episode.
func (d *Dataset) Recording(ep int) string {
	if ep < 0 || ep >= len(d.episodes) {
		return ""
	}
	return d.pool.recs[d.episodes[ep].rec].Name
}

// Notes returns the notes of the recording that contains an episode.
func (d *Dataset) Notes(ep int) map[string]string {
	if ep < 0 || ep >= len(d.episodes) {
		return nil
	}
	return maps.Clone(d.notes[d.episodes[ep].rec])
}

// maxNoticed limits the number of recorded findings. Further ones are dropped.
const maxNoticed = 10000

// recordFinding records a finding, unless one with the same code and place was recorded before. ep
// is negative if the finding does not belong to one episode.
func (d *Dataset) recordFinding(ep int, f robocache.Finding) {
	w := robocache.Where{}
	if ep >= 0 {
		w["episode"] = ep
	}
	maps.Copy(w, f.Where)
	f.Where = w
	id := f.Code + "\x00" + w.String()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.recordedFindings[id] || len(d.noticed) >= maxNoticed {
		return
	}
	d.recordedFindings[id] = true
	d.noticed = append(d.noticed, f)
}

// Noticed returns the findings of all reads so far.
func (d *Dataset) Noticed() []robocache.Finding {
	d.pool.forEachOpen(d.storageFindings)
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.noticed)
}

// storageFindings records the findings of a storage.
func (d *Dataset) storageFindings(s Storage) {
	for _, f := range s.Findings() {
		d.recordFinding(-1, f)
	}
}

// CacheStats returns the counters of the caches of timestamps and columns.
func (d *Dataset) CacheStats() (tracks, columns lru.Stats) {
	return d.tracks.Stats(), d.blocks.Stats()
}

// Close closes the recordings and the store.
func (d *Dataset) Close() error {
	err := errors.Join(d.lib.Close(), d.pool.close(), d.Base.Close())
	d.videos.Clear()
	d.tracks.Clear()
	d.blocks.Clear()
	return err
}

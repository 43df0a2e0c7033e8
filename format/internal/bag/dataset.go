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

// Dataset is a set of recordings, each cut into one or several episodes.
type Dataset struct {
	reader.Base
	opt     Options
	pool    *pool
	topics  []*topic
	streams []stream // parallel to info.Features
	byKey   map[string]int
	eps     []episode
	lens    []atomic.Int64 // rows by the anchor's clock
	anchor  struct{ topic, clock int }
	task    taskSource
	layout  *Layout             // of recordings that were written by us
	notes   []map[string]string // a recording's own

	tracks    *lru.Cache[trackKey, *track]
	blocks    *lru.Cache[blockKey, *block]
	videos    *lru.Cache[videoKey, *topicVideo]
	videoKeys map[string]videoKey // by path
	kept      int64               // bytes of topic.header
	lib       *video.Library

	mu      sync.Mutex
	noticed []robocache.Finding
	said    map[string]bool
}

var _ robocache.Dataset = (*Dataset)(nil)

// topic is a topic of the dataset: of one name and type, in any of its recordings.
type topic struct {
	name, typ, key string
	schema         *ros2.Schema
	dec            *ros2.Topic
	first          [][]byte // the messages that settled its columns
	firstLog       []int64
	fields         []ros2.Field
	clocks         []string
	plans          []plan // parallel to clocks
	many           bool   // a message holds any number of rows
	stamped        bool   // messages have a header
	publish        bool   // messages have a publish time
	latched        bool
	// timestamps of the messages of a recording, where settling has read them
	header   map[int][]int64
	gaps     bool    // of video: messages without an image
	blank    bool    // of video: no message has one
	restored bool    // its field is that of the dataset it was written from
	choice   string  // its clock
	place    []int   // in each recording's topics; -1 = not there
	counts   []int64 // messages in each recording
	wanted   atomic.Bool
}

// episode is a part of a recording.
type episode struct {
	rec      int
	whole    bool
	from, to int64 // log times, half-open
	err      error // of a recording that cannot be opened
}

// Len is the number of rows of an episode.
func (d *Dataset) Len(ep int) int {
	if ep < 0 || ep >= len(d.lens) {
		return 0
	}
	return int(d.lens[ep].Load())
}

func (d *Dataset) episode(ep int) *episode {
	guard.Check(op.Episode(len(d.eps), ep))
	guard.Check(d.eps[ep].err)
	return &d.eps[ep]
}

// Episode gives number, length and tasks.
func (d *Dataset) Episode(ctx context.Context, ep int) (_ robocache.Episode, err error) {
	defer guard.Recover("episode", &err)
	d.episode(ep)
	return robocache.Episode{
		Position: ep,
		Index:    int64(ep),
		Length:   d.Len(ep),
		Tasks:    d.tasks(ctx, ep),
	}, nil
}

// Recording names the recording that an episode is of.
func (d *Dataset) Recording(ep int) string {
	if ep < 0 || ep >= len(d.eps) {
		return ""
	}
	return d.pool.recs[d.eps[ep].rec].Name
}

// Notes are the notes of the recording that an episode is of.
func (d *Dataset) Notes(ep int) map[string]string {
	if ep < 0 || ep >= len(d.eps) {
		return nil
	}
	return maps.Clone(d.notes[d.eps[ep].rec])
}

const maxNoticed = 10000

// notice records a finding once; ep < 0 where it is not of one episode.
func (d *Dataset) notice(ep int, f robocache.Finding) {
	w := robocache.Where{}
	if ep >= 0 {
		w["episode"] = ep
	}
	maps.Copy(w, f.Where)
	f.Where = w
	id := f.Code + "\x00" + w.String()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.said[id] || len(d.noticed) >= maxNoticed {
		return
	}
	d.said[id] = true
	d.noticed = append(d.noticed, f)
}

// Noticed gives what reading found after Open.
func (d *Dataset) Noticed() []robocache.Finding {
	d.pool.each(d.storageFindings)
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.noticed)
}

func (d *Dataset) storageFindings(s Storage) {
	for _, f := range s.Findings() {
		d.notice(-1, f)
	}
}

// CacheStats says what the caches of timestamps and columns did.
func (d *Dataset) CacheStats() (tracks, columns lru.Stats) { return d.tracks.Stats(), d.blocks.Stats() }

// Close closes the recordings and the store.
func (d *Dataset) Close() error {
	err := errors.Join(d.lib.Close(), d.pool.close(), d.Base.Close())
	d.videos.Clear()
	d.tracks.Clear()
	d.blocks.Clear()
	return err
}

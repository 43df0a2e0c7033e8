package bag

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/guard/leafcache"
	"github.com/goatnote-inc/robocache/video"
)

// topicVideo is a topic of video packets in one recording. It is an MP4 of the images that can be
// decoded, and the mapping between messages and images.
type topicVideo struct {
	mp4     *video.VirtualMP4 // nil if there is no image
	image   []int32           // image of each message; -1 means none
	message []int32           // message of each image
	version string
	remote  bool // reads use a network
	absent  int  // messages without an image
}

// videoKey identifies a topic video by the numbers of its recording and its topic.
type videoKey struct{ rec, topic int }

// memoryBytes returns the size of a topic video in the cache.
func (r *topicVideo) memoryBytes() int64 {
	const overhead = 300 // about the size of a topicVideo
	n := 4*int64(len(r.image)+len(r.message)) + overhead
	if r.mp4 != nil {
		n += r.mp4.MemoryBytes()
	}
	return n
}

// nominalRate is the rate in the header of topic videos. The times of images are the timestamps of
// the messages.
var nominalRate = robocache.Rate{Num: 30, Den: 1}

// Video returns the library with the topic videos.
func (d *Dataset) Video() *video.Library { return d.lib }

// videoPath returns the name of a topic video as a file of the dataset.
func (d *Dataset) videoPath(k videoKey) string {
	return d.pool.recs[k.rec].Name + "#" + d.topics[k.topic].name
}

// numberRecordings returns the numbers of the recordings by name.
func (d *Dataset) numberRecordings() map[string]int {
	numbers := make(map[string]int, len(d.pool.recs))
	for rec := range d.pool.recs {
		numbers[d.pool.recs[rec].Name] = rec
	}
	return numbers
}

// videoKeyOf returns the topic video with a name (see videoPath). Names of recordings and topics may
// contain "#".
func (d *Dataset) videoKeyOf(path string) (k videoKey, ok bool) {
	for at := range len(path) {
		if path[at] != '#' {
			continue
		}
		rec, isKnown := d.recordingNumbers()[path[:at]]
		if !isKnown {
			continue
		}
		for i, t := range d.topics {
			if t.name == path[at+1:] && t.dec.Codec() != "" && t.storageIndex[rec] >= 0 {
				return videoKey{rec, i}, true
			}
		}
	}
	return videoKey{}, false
}

// openVideo opens a topic video by its name.
func (d *Dataset) openVideo(ctx context.Context, path string) (_ robocache.Ranged, err error) {
	defer guard.Recover("video", &err)
	k, ok := d.videoKeyOf(path)
	if !ok {
		return nil, robocache.NotFound("video", robocache.Where{"file": path}, "no such video")
	}
	r := d.loadedVideo(ctx, k)
	if r.mp4 == nil {
		return nil, robocache.NotFound(
			"video",
			robocache.Where{"file": path},
			"no message holds an image that can be decoded",
		)
	}
	return &videoFile{d: d, key: k, video: r}, nil
}

// loadedVideo returns the topic video of a topic. It is built once from all messages of the topic.
func (d *Dataset) loadedVideo(ctx context.Context, k videoKey) *topicVideo {
	defer guard.At(
		robocache.Where{"file": d.pool.recs[k.rec].Name, "stream": d.topics[k.topic].key},
	)
	return leafcache.Load(ctx, d.videos, k, func() (*topicVideo, int64) {
		r := d.loadTopicVideo(ctx, k)
		return r, r.memoryBytes()
	})
}

// loadTopicVideo reads the messages of a topic in one recording, and builds its topic video from
// their packets. A message without a readable packet counts as a lost packet.
func (d *Dataset) loadTopicVideo(ctx context.Context, k videoKey) *topicVideo {
	t := d.topics[k.topic]
	var recordingCodec video.Codec // the codec that the messages name; "" if none does so far
	stream := guard.Must(video.NewStream(t.dec.Codec(), video.Limits{}))
	r := &topicVideo{}
	// addPacket adds the packet of message i to the stream, and records its image.
	addPacket := func(i int, m *Message) error {
		packet, codec, err := t.dec.Packet(m.Data)
		if err != nil {
			stream.Lost()
		}
		if err != nil || len(packet) == 0 {
			return err
		}
		if codec != "" && codec != recordingCodec {
			if recordingCodec != "" {
				return robocache.Unsupported(
					"video",
					nil,
					"the coding changes from %s to %s",
					recordingCodec,
					codec,
				).
					WithHint("cut the recording there")
			}
			recordingCodec = codec
			// The topic's codec is that of its first recording. This one may use another.
			if codec != t.dec.Codec() {
				if stream, err = video.NewStream(codec, video.Limits{}); err != nil {
					return err
				}
			}
		}
		image, err := stream.Add(packet) // -1 if the packet cannot be decoded
		if image >= 0 {
			r.image[i] = int32(image)
			r.message = append(r.message, int32(i))
		}
		return err
	}
	var undecodable int64
	var firstErr error
	d.useStorage(ctx, k.rec, func(s Storage) {
		n := len(guard.Must(s.Index(ctx, t.storageIndex[k.rec])).Log)
		r.remote, r.image = s.Remote(), slices.Repeat([]int32{-1}, n)
		next := 0
		guard.Check(s.Messages(ctx, t.storageIndex[k.rec], 0, n, func(i int, m *Message) error {
			if i != next { // the messages between are in a damaged part of the recording
				stream.Lost()
			}
			next = i + 1
			err := addPacket(i, m)
			if err == nil {
				return nil
			}
			err = robocache.At(err, robocache.Where{"index": i})
			if errors.Is(err, robocache.ErrMalformed) {
				undecodable++
				firstErr = cmp.Or(firstErr, err)
				return nil
			}
			return err
		}))
	})
	if undecodable > 0 && d.opt.Strict {
		guard.Fail(firstErr)
	}
	r.absent = len(r.image) - len(r.message)
	d.reportSizeChange(k, r, stream)
	d.reportVideoFaults(k, r, stream, undecodable, firstErr)
	if len(r.message) == 0 {
		return r
	}
	stream.SetColour(d.sourceColour(t))
	r.mp4 = guard.Must(stream.MP4(nominalRate))
	// the head contains the packet sizes, the key frames and the parameter sets
	sum := sha256.Sum256(r.mp4.Head())
	r.version = "video-" + hex.EncodeToString(sum[:12])
	return r
}

// reportSizeChange records a finding if the images of a topic video have another size than those of
// the topic's first recording.
func (d *Dataset) reportSizeChange(k videoKey, r *topicVideo, stream *video.Stream) {
	t := d.topics[k.topic]
	f := &t.fields[0].Feature
	w, h := stream.Size()
	if len(r.message) == 0 || w == f.Width && h == f.Height {
		return
	}
	d.recordFinding(-1, robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "image-size-differs",
		Where:    robocache.Where{"file": d.pool.recs[k.rec].Name, "stream": t.key},
		Message: fmt.Sprintf(
			"the images are %d×%d, those of the recordings before %d×%d",
			w,
			h,
			f.Width,
			f.Height,
		),
		Hint:  "read them at one size: " + robocache.Option("image_size"),
		Count: int64(len(r.message)),
	})
}

// reportVideoFaults records findings for images that a topic video lacks. undecodable is the number
// of messages without a readable packet, and firstErr is the error of the first one.
func (d *Dataset) reportVideoFaults(
	k videoKey,
	r *topicVideo,
	stream *video.Stream,
	undecodable int64,
	firstErr error,
) {
	where := robocache.Where{"file": d.pool.recs[k.rec].Name, "stream": d.topics[k.topic].key}
	report := func(sev robocache.Severity, code string, n int, format, hint string) {
		if n > 0 {
			d.recordFinding(-1, robocache.Finding{
				Severity: sev,
				Code:     code,
				Where:    where,
				Message:  fmt.Sprintf(format, n),
				Hint:     hint,
				Count:    int64(n),
			})
		}
	}
	beforeKey, afterLoss := stream.Absent()
	report(
		robocache.SeverityWarning,
		"video-before-key",
		beforeKey,
		"%d images come before the first key frame, and cannot be decoded: their rows have none",
		"begin recording with a key frame",
	)
	report(
		robocache.SeverityError,
		"video-cut",
		afterLoss,
		"%d images follow one that is missing, up to the next key frame: they cannot be "+
			"decoded, their rows have none",
		"more key frames; a queue that drops no messages",
	)
	if len(r.message) == 0 && beforeKey == 0 && undecodable == 0 {
		report(
			robocache.SeverityWarning,
			"video-without-images",
			len(r.image),
			"none of the %d messages holds an image: the rows have none",
			"",
		)
	}
	if undecodable > 0 {
		d.recordFinding(-1, robocache.Finding{
			Severity: robocache.SeverityError,
			Code:     "malformed-message",
			Where:    where,
			Message: fmt.Sprintf(
				"%d messages hold no packet that can be read; the first: %v",
				undecodable,
				firstErr,
			),
			Count: undecodable,
		})
	}
}

// videoFile presents a topic video as a file. It reads samples from the messages.
type videoFile struct {
	d     *Dataset
	key   videoKey
	video *topicVideo
}

func (f *videoFile) Size() int64     { return f.video.mp4.Size() }
func (f *videoFile) Version() string { return f.video.version }
func (f *videoFile) Close() error    { return nil }

// Remote reports whether packets should be fetched before they are decoded.
func (f *videoFile) Remote() bool { return f.video.remote }

// ReadAt reads part of the virtual MP4. Its head is in memory, and its samples are the packets of
// the messages, which are read again.
func (f *videoFile) ReadAt(ctx context.Context, p []byte, off int64) (err error) {
	defer guard.Recover("video", &err)
	guard.Check(ctx.Err())
	d, r := f.d, f.video
	t := d.topics[f.key.topic]
	readPackets := func(first, last int, yield func(image int, packet []byte) error) error {
		return d.pool.withStorage(ctx, f.key.rec, func(s Storage) error {
			return s.Messages(
				ctx,
				t.storageIndex[f.key.rec],
				int(r.message[first]),
				int(r.message[last])+1,
				func(i int, m *Message) error {
					if r.image[i] < 0 { // a message between them that has no image
						return nil
					}
					packet, _, err := t.dec.Packet(m.Data)
					if err != nil {
						return err
					}
					return robocache.At(yield(int(r.image[i]), packet), robocache.Where{"index": i})
				},
			)
		})
	}
	return r.mp4.ReadAt(p, off, readPackets)
}

// videoRows finds the image of each row of a topic of packets. It calls fn with the image number in
// the topic video at path, or -1 if the row has none.
func (d *Dataset) videoRows(
	ctx context.Context,
	s *stream,
	f *robocache.Feature,
	want []robocache.Row,
	fn func(i int, path string, image int),
) {
	forEachRun(want, func(ep, from, to int) {
		e := d.openEpisode(ep)
		rows := &d.trackOf(ctx, ep, s.topic, false).clocks[s.clock]
		for i := from; i < to; i++ {
			d.checkRow(f, rows, want[i])
		}
		k := videoKey{e.rec, s.topic}
		r, err := guard.Value(func() *topicVideo { return d.loadedVideo(ctx, k) })
		guard.Check(robocache.At(err, robocache.Where{"episode": d.About.EpisodeIndex(ep)}))
		path := d.videoPath(k)
		for i := from; i < to; i++ {
			message := rows.messageOf(want[i].Index)
			fn(i, path, int(r.image[message]))
		}
	})
}

// findVideos builds the topic videos, to find topics with messages that have no image.
func (d *Dataset) findVideos(ctx context.Context) {
	for i, t := range d.topics {
		if t.dec.Codec() == "" {
			continue
		}
		t.noImages = true
		for rec, storageIndex := range t.storageIndex {
			if storageIndex < 0 || t.counts[rec] == 0 {
				continue
			}
			k := videoKey{rec, i}
			r, err := guard.Value(func() *topicVideo { return d.loadedVideo(ctx, k) })
			if err != nil {
				d.failIfFatal(err)
				d.recordFinding(-1, robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-video",
					Where:    robocache.Where{"file": d.pool.recs[rec].Name, "stream": t.key},
					Message:  err.Error(),
				})
				t.lacksImages = true
				continue
			}
			t.lacksImages = t.lacksImages || r.absent > 0
			t.noImages = t.noImages && r.mp4 == nil
		}
	}
}

// checkVideos builds the topic videos of an episode, and returns a finding for each one that fails.
// If decode is set, it also decodes all images.
func (d *Dataset) checkVideos(ctx context.Context, ep int, decode bool) (out []robocache.Finding) {
	e := d.openEpisode(ep)
	for i, t := range d.topics {
		if t.dec.Codec() == "" || t.storageIndex[e.rec] < 0 {
			continue
		}
		k := videoKey{e.rec, i}
		err := guard.Try(func() {
			if d.loadedVideo(ctx, k).mp4 == nil || !decode {
				return
			}
			f := guard.Must(d.lib.Acquire(ctx, d.videoPath(k)))
			defer f.Release()
			pool := video.NewPool(d.opt.Budget / 16)
			defer pool.Close()
			guard.Check(pool.Decode(
				ctx,
				f,
				nil,
				video.Plan(f.Index, f.Index.All()),
				func(int, video.Frame) error { return nil },
			))
		})
		if guard.Check(ctx.Err()); episodeError(err) != nil {
			out = append(out, robocache.Finding{
				Severity: robocache.SeverityError,
				Code:     "bad-video",
				Where:    robocache.Where{"episode": d.About.EpisodeIndex(ep), "stream": t.key},
				Message:  err.Error(),
				Hint:     "Record the topic again.",
			})
		}
	}
	return out
}

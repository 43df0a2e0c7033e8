package bag

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/ros2"
	"github.com/goatnote-inc/robocache/internal/guard"
	"github.com/goatnote-inc/robocache/internal/lru"
	"github.com/goatnote-inc/robocache/video"
)

const (
	defaultBudget     = 256 << 20
	minBudget         = 8 << 20
	maxOpenRecordings = 64
	scanAllBelow      = 64 << 20 // bytes of messages up to which scan=auto reads all at opening
	// number of first messages that determine a topic's columns, unless all messages are read
	sampleCount         = 16
	maxTopicSampleBytes = 32 << 20 // limit on the bytes of one topic, except for the first message
	maxSampleBytes      = 1 << 30  // limit on the bytes of all topics
	maxTopics           = 65535
	maxKeyFrameSearch   = 4096 // messages of video that are searched for the first key frame
)

// Open opens a dataset of recordings. A recording that cannot be opened becomes an episode with an
// error and a finding. If no recording can be opened, or there is only one, Open returns the error.
func Open(ctx context.Context, recs []Recording, opt Options) (d *Dataset, err error) {
	defer guard.Recover("open", &err)
	opt.Budget = max(cmp.Or(max(opt.Budget, 0), defaultBudget), minBudget)
	opt.Tolerance = cmp.Or(max(opt.Tolerance, 0), defaultTolerance)
	d = &Dataset{
		Base: reader.Base{
			Bytes: opt.Store,
		},
		opt:              opt,
		byKey:            map[string]int{},
		recordedFindings: map[string]bool{},
		notes:            make([]map[string]string, len(recs)),
		tracks:           lru.New[trackKey, *track](opt.Budget / 4),
		blocks:           lru.New[blockKey, *block](opt.Budget / 4),
		videos:           lru.New[videoKey, *topicVideo](opt.Budget / 8),
	}
	d.Offered = robocache.Capabilities{
		Clocks:       d.Clocks,
		Diagnose:     d.Diagnose,
		GatherRagged: d.GatherRagged,
		Message:      d.Message,
		Noticed:      d.Noticed,
		Origin:       d.Origin,
		Recording:    d.Recording,
		TimesBy:      d.TimesBy,
		Valid:        d.Valid,
	}
	d.recordingNumbers = sync.OnceValue(d.numberRecordings)
	d.lib = video.NewLibrary(d.openVideo, opt.Budget/16)
	d.About = &robocache.Info{
		URI:      opt.URI,
		Format:   opt.Format,
		Version:  opt.Version,
		Features: []robocache.Feature{},
	}
	d.pool = newPool(recs, maxOpenRecordings, opt.Budget/4, d.storageFindings)
	isComplete := false
	pool := d.pool // d is nil after an early return
	defer func() {
		if !isComplete { // also after a panic
			pool.close()
			d = nil
		}
	}()
	heads, totalBytes, errs := d.openRecordings(ctx)
	if len(errs) > 0 && !slices.Contains(errs, nil) {
		return nil, errs[0]
	}
	d.readLayout(errs)
	d.listTopics(heads)
	d.sampleTopics(ctx)
	isAuto := opt.Scan != "all" && opt.Scan != "sample"
	all := opt.Scan == "all" || isAuto && totalBytes <= scanAllBelow
	d.cutEpisodes(ctx, errs)
	if all {
		d.surveyAll(ctx)
	} else {
		for _, t := range d.topics {
			d.surveySample(t)
		}
	}
	d.applyChannelOrder()
	if all {
		d.findVideos(ctx)
	}
	d.describeFeatures(all)
	d.chooseAnchor(ctx)
	d.countRows(ctx, all)
	d.findTasks(ctx)
	d.About.Findings = append(d.About.Findings, d.Noticed()...)
	d.About.Findings = append(d.About.Findings, opt.Index.Finish()...)
	isComplete = true
	return d, nil
}

// openRecordings returns the head of each recording, the size of all messages, and the error of
// each recording. It takes heads from the index, and opens the other recordings, several at a time.
// It fails the call at an error that is fatal, and at any error if the dataset is strict or has one
// recording.
func (d *Dataset) openRecordings(
	ctx context.Context,
) (heads []*recordingHead, totalBytes int64, errs []error) {
	n := len(d.pool.recs)
	heads, errs = d.indexedHeads(), make([]error, n)
	sharer := headSharer{
		topics: map[string][]TopicInfo{},
		texts:  headParser{texts: map[string]string{}},
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(max(2, min(16, 2*runtime.GOMAXPROCS(0))))
	for i := range n {
		if heads[i] != nil {
			continue
		}
		g.Go(func() error {
			errs[i] = d.pool.withStorage(gctx, i, func(s Storage) (err error) {
				defer guard.Recover("open", &err)
				heads[i], err = headOf(gctx, s)
				return err
			})
			if err := errs[i]; err != nil && (d.opt.Strict || n == 1 || isFatal(err)) {
				return err
			}
			if errs[i] == nil {
				sharer.shareEqual(heads[i])
				d.recordHead(i, heads[i])
			}
			return nil
		})
	}
	guard.Check(g.Wait())
	for i, h := range heads {
		if h != nil {
			totalBytes += h.bytes
			d.notes[i] = h.notes
		}
	}
	return heads, totalBytes, errs
}

// failIfFatal fails the call if err does not concern one recording's data, or if the dataset is
// strict.
func (d *Dataset) failIfFatal(err error) {
	if isFatal(err) || d.opt.Strict {
		guard.Fail(err)
	}
}

// isFatal reports whether err must fail the call, because it does not concern the data of one
// recording. Examples are a limit of the machine, a wrong call and a canceled context.
func isFatal(err error) bool {
	if robocache.IsMachineLimit(err) {
		return true
	}
	for _, class := range []error{
		robocache.ErrInternal,
		robocache.ErrTemporary,
		robocache.ErrMisuse,
		context.Canceled,
		context.DeadlineExceeded,
	} {
		if errors.Is(err, class) {
			return true
		}
	}
	return false
}

// listTopics finds the topics of all recordings. Topics whose messages cannot be decoded become
// findings.
func (d *Dataset) listTopics(heads []*recordingHead) {
	byName := map[string]*topic{}
	schemas := map[string]*ros2.Schema{}
	refused := map[string]bool{} // by name and type
	for rec, head := range heads {
		if head == nil {
			continue
		}
		for storageIndex := range head.topics {
			info, messages := &head.topics[storageIndex], head.counts[storageIndex]
			if len(refused) > 0 && refused[info.Name+"\x00"+info.Type] {
				continue
			}
			t := byName[info.Name]
			if t == nil {
				s, err := guard.Value(func() *ros2.Schema { return schemaOf(schemas, info) })
				if err != nil {
					if messages > 0 || len(heads) == 1 {
						d.reportTopic(rec, info, messages, err)
					}
					refused[info.Name+"\x00"+info.Type] = true
					continue
				}
				t = d.appendTopic(info, s, len(heads))
				byName[info.Name] = t
			}
			if t.typ != info.Type || t.storageIndex[rec] >= 0 {
				d.reportOtherType(rec, t, info, messages)
				continue
			}
			t.storageIndex[rec], t.counts[rec] = storageIndex, messages
			t.hasPublish = t.hasPublish || info.Publish
			isStaticTransform := info.Name == "/tf_static" || // latched by convention
				strings.HasSuffix(info.Name, "/tf_static")
			t.latched = t.latched || info.Latched || isStaticTransform
		}
	}
	d.sortTopics()
}

// appendTopic adds a topic that no recording has so far. It fails the call if there are too many.
func (d *Dataset) appendTopic(info *TopicInfo, schema *ros2.Schema, recordings int) *topic {
	if len(d.topics) >= maxTopics {
		guard.Fail(robocache.ResourceLimit("open", nil, "").
			Expected(fmt.Sprintf("at most %d topics", maxTopics), "more"))
	}
	t := &topic{
		name:         info.Name,
		typ:          info.Type,
		schema:       schema,
		key:          ros2.Key(info.Name),
		storageIndex: slices.Repeat([]int{-1}, recordings),
		counts:       make([]int64, recordings),
	}
	d.topics = append(d.topics, t)
	return t
}

// reportOtherType records a finding for messages that are left out, because topic t has another type
// than theirs.
func (d *Dataset) reportOtherType(rec int, t *topic, info *TopicInfo, messages int64) {
	d.recordFinding(-1, robocache.Finding{
		Severity: robocache.SeverityWarning,
		Code:     "topic-type-differs",
		Where:    robocache.Where{"file": d.pool.recs[rec].Name, "stream": info.Name},
		Message: fmt.Sprintf(
			"the topic is %s here and %s elsewhere: these %d messages are left out",
			info.Type,
			t.typ,
			messages,
		),
		Count: messages,
	})
}

// sortTopics sorts the topics by name, or as the streams of the original dataset if the recordings
// have a layout.
func (d *Dataset) sortTopics() {
	slices.SortFunc(d.topics, func(a, b *topic) int { return strings.Compare(a.name, b.name) })
	if d.layout == nil {
		return
	}
	position := map[string]int{} // 0 = the layout does not list the topic, which then comes first
	for i, s := range d.layout.Streams {
		position[s.Topic] = i + 1
	}
	slices.SortStableFunc(d.topics, func(a, b *topic) int {
		return position[a.name] - position[b.name]
	})
}

// schemaOf returns the schema of a topic's messages. known holds the schemas that are already
// loaded. It fails the call if the schema cannot be used.
func schemaOf(known map[string]*ros2.Schema, info *TopicInfo) *ros2.Schema {
	if info.Encoding != "cdr" {
		guard.Fail(robocache.Unsupported("open", nil, "message encoding").
			Expected("cdr", fmt.Sprintf("%.40q", info.Encoding)))
	}
	key := info.SchemaEncoding + "\x00" + info.Type + "\x00" + info.SchemaText
	if s := known[key]; s != nil {
		return s
	}
	s := guard.Must(ros2.LoadSchema(info.SchemaEncoding, info.Type, info.SchemaText))
	known[key] = s
	return s
}

// reportTopic records a finding for a topic that is left out because of err.
func (d *Dataset) reportTopic(rec int, info *TopicInfo, messages int64, err error) {
	sev, code, class := robocache.SeverityError, "unreadable-topic", "malformed"
	if errors.Is(err, robocache.ErrUnsupported) {
		sev, code, class = robocache.SeverityWarning, "unsupported-topic", "unsupported"
		if strings.HasSuffix(info.Type, "Image") || strings.HasSuffix(info.Type, "Video") {
			sev = robocache.SeverityError // a camera
		}
	}
	d.recordFinding(-1, robocache.Finding{
		Severity:     sev,
		Code:         code,
		NotDelivered: ros2.Key(info.Name),
		Class:        class,
		Where:        robocache.Where{"file": d.pool.recs[rec].Name, "stream": info.Name},
		Message:      fmt.Sprintf("%s (%s) is left out: %v", info.Name, info.Type, err),
		Count:        messages,
	})
}

// sampleTopics determines the columns of each topic from the first messages of the first recording
// that has any.
func (d *Dataset) sampleTopics(ctx context.Context) {
	kept := d.topics[:0]
	allBytes := 0
	for _, t := range d.topics {
		rec := slices.IndexFunc(t.counts, func(n int64) bool { return n > 0 })
		if rec < 0 {
			continue // never published
		}
		topicBytes := 0
		first := func(log []int64) (int, int) { return 0, min(sampleCount, len(log)) }
		err := guard.Try(func() {
			d.forEachMessage(ctx, rec, t, first, func(i int, m *Message) error {
				topicBytes += len(m.Data)
				if i > 0 && topicBytes > maxTopicSampleBytes {
					return nil // the samples so far are enough
				}
				// A small compressed file can contain large messages, so all samples have a limit.
				allBytes += len(m.Data)
				if allBytes > maxSampleBytes {
					return robocache.ResourceLimit("open", nil, "the first messages of the topics").
						Expected("at most 1 GiB", "more")
				}
				t.samples = append(t.samples, slices.Clone(m.Data))
				t.sampleLogs = append(t.sampleLogs, m.Log)
				return nil
			})
		})
		if err != nil {
			d.failIfFatal(err)
		} else {
			t.dec, err = ros2.NewTopic(t.name, t.schema, t.samples)
			if err == nil && !d.findImageSize(ctx, rec, t) {
				err = robocache.Malformed(
					"open",
					nil,
					"no key frame with its parameter sets among the first %d messages of video "+
						"of a recording",
					maxKeyFrameSearch,
				)
			}
		}
		if err != nil {
			d.reportTopic(rec, &TopicInfo{Name: t.name, Type: t.typ}, t.counts[rec], err)
			continue
		}
		d.refreshFields(t)
		kept = append(kept, t)
	}
	d.topics = kept
}

// findImageSize finds the size of a topic's images. Video states it only in key frames, and the
// first one may be behind the samples or in another recording, so findImageSize reads more messages
// until it finds one. rec is the recording of the samples. The result is false if the topic is
// video whose size is still unknown.
func (d *Dataset) findImageSize(ctx context.Context, rec int, t *topic) bool {
	errFound := errors.New("found") // ends the reading
	firstUnread := sampleCount      // the decoder has scanned the samples
	for ; rec < len(t.counts) && t.dec.Undecided(); rec++ {
		if t.counts[rec] == 0 {
			continue
		}
		span := func(log []int64) (int, int) {
			return min(firstUnread, len(log)), min(maxKeyFrameSearch, len(log))
		}
		err := guard.Try(func() {
			d.forEachMessage(ctx, rec, t, span, func(_ int, m *Message) error {
				_ = t.dec.Scan(m.Data, nil) // errors are reported when the message is read
				if !t.dec.Undecided() {
					return errFound
				}
				return nil
			})
		})
		if !errors.Is(err, errFound) {
			_ = episodeError(err) // fails if err is fatal; others are reported when it is read
		}
		firstUnread = 0
	}
	if !t.dec.Undecided() {
		return true
	}
	isVideo := t.dec.Fields()[0].Feature.Kind == robocache.KindVideo
	return !isVideo
}

// refreshFields copies the streams and clocks from the decoder, after its scans may have changed
// them.
func (d *Dataset) refreshFields(t *topic) {
	t.key, t.fields, t.clocks = t.dec.Key(), t.dec.Fields(), t.dec.Clocks()
	d.restoreFeature(t)
	t.manyRows = len(t.clocks) != 1 || t.clocks[0] != t.key
	t.plans = t.plans[:0]
	for c := range t.clocks {
		t.plans = append(t.plans, newPlan(t, c))
	}
}

// describeFeatures lists the features. If all is false, some messages were not read, so partial
// fields are masked.
func (d *Dataset) describeFeatures(all bool) {
	for k, t := range d.topics {
		for i := range t.fields {
			clock := t.fields[i].Clock
			f := t.fields[i].Feature
			if !t.restored {
				f.Clock = t.clocks[clock]
				f.Masked = f.Masked || t.fields[i].Partial && !all
			}
			f.Masked = f.Masked || f.Kind == robocache.KindVideo && t.lacksImages
			if t.latched && !t.restored {
				f.Masked, f.Latched, f.Interpolation = false, true, "previous"
			}
			if t.isTask(d) && f.Kind == robocache.KindText && f.Key == "task" {
				continue // becomes the pseudo-feature "task"
			}
			f.Key = d.uniqueKey(f.Key)
			d.byKey[f.Key] = len(d.streams)
			d.streams = append(d.streams, stream{
				topic:  k,
				field:  i,
				clock:  clock,
				column: slices.Index(t.plans[clock].fields, i),
			})
			d.About.Features = append(d.About.Features, f)
		}
	}
}

// uniqueKey returns key, or key#2, key#3 and so on if other streams have these keys.
func (d *Dataset) uniqueKey(key string) string {
	for n := 2; ; n++ {
		if _, used := d.byKey[key]; !used {
			return key
		}
		lastNumber := fmt.Sprintf("#%d", n-1) // the suffix of the last attempt
		key = fmt.Sprintf("%s#%d", strings.TrimSuffix(key, lastNumber), n)
	}
}

// countRows determines the number of rows of each episode, which are those of the anchor. If all is
// false, the number of messages in the index is used where possible, without reading them.
func (d *Dataset) countRows(ctx context.Context, all bool) {
	d.rowCounts = make([]atomic.Int64, len(d.episodes))
	d.About.Episodes = len(d.episodes)
	for i := range d.episodes {
		e := &d.episodes[i]
		hasMessages := func(t *topic) bool {
			return t.storageIndex[e.rec] >= 0 && t.counts[e.rec] > 0
		}
		if e.err == nil && !slices.ContainsFunc(d.topics, hasMessages) {
			d.recordFinding(i, robocache.Finding{
				Severity: robocache.SeverityWarning,
				Code:     "empty-episode",
				Where:    robocache.Where{"file": d.pool.recs[e.rec].Name},
				Message: "the recording holds no message that can be read: the episode has " +
					"no rows",
			})
		}
	}
	if d.anchor.topic < 0 {
		return
	}
	t := d.topics[d.anchor.topic]
	for i := range d.episodes {
		e := &d.episodes[i]
		if e.err != nil || t.storageIndex[e.rec] < 0 {
			continue
		}
		n := t.counts[e.rec]
		if all || t.manyRows || !e.whole {
			tr, err := guard.Value(
				func() *track { return d.trackOf(ctx, i, d.anchor.topic, false) },
			)
			if err != nil {
				d.failIfFatal(err)
				e.err = err
				d.recordFinding(i, robocache.Finding{
					Severity: robocache.SeverityError,
					Code:     "unreadable-episode",
					Message:  err.Error(),
					Lost:     true,
				})
				continue
			}
			n = int64(tr.clocks[d.anchor.clock].n)
		}
		d.rowCounts[i].Store(n)
		d.About.Frames += n
	}
}

package calvin

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/format/internal/npy"
	"github.com/goatnote-inc/robocache/format/internal/reader"
	"github.com/goatnote-inc/robocache/format/internal/zipdir"
	"github.com/goatnote-inc/robocache/internal/crash"
)

const objectsSkipped = "objects-skipped"

const (
	// headerPrefix is the number of bytes of an array that are read to determine its type and
	// shape. It is more than the largest header that npy accepts.
	headerPrefix = 12 << 10
	// maxLocalHeaders and maxRemoteHeaders are the maximum numbers of runs for which all arrays are
	// opened. In a larger set, frames whose arrays have the same names and sizes count as alike.
	maxLocalHeaders  = 1024
	maxRemoteHeaders = 16
	// maxArrays limits the arrays of a set: the union is large if the frames have nothing in
	// common.
	maxArrays = 10_000
)

// surveyArray is an array of a frame in the survey.
type surveyArray struct {
	member
	err error // error of an unreadable header
}

// frameClass is a group of frames whose arrays have the same names and sizes.
type frameClass struct {
	frames []int  // positions in the survey
	name   string // file of the frame that represents the class
	arrays []surveyArray
}

// surveyFrame is a frame in the survey.
type surveyFrame struct {
	run, row int
	class    *frameClass
	err      error
}

// describeMembers computes the streams: the union of the arrays of all runs, each with its most
// common type and shape (calvin.C2). It reads the first and the last frame of each run.
func (d *Dataset) describeMembers(ctx context.Context) error {
	if err := d.findPatterns(ctx); err != nil {
		return err
	}
	frames, err := d.surveyFrames(ctx)
	if err != nil {
		return err
	}
	readable := 0
	var unreadable error
	for _, f := range frames {
		if f.err != nil {
			unreadable = cmp.Or(unreadable, f.err)
		} else {
			readable++
		}
	}
	if readable == 0 {
		return unreadable
	}
	names, err := collectArrays(frames)
	if err != nil {
		return err
	}
	slices.SortStableFunc(
		names,
		func(a, b *arrayVotes) int { return documentedAt(a.name) - documentedAt(b.name) },
	)
	offset := 0
	for _, v := range names {
		best := v.mostCommon()
		switch {
		case best != nil && best.typ.DType() != robocache.InvalidDType:
			m := best.member
			m.flat = !m.typ.Big && !(best.fortran && len(m.shape) > 1)
			d.addStreams(&m, &offset)
			d.members = append(d.members, m)
			d.absent = append(d.absent, v.absentRuns(frames))
		case best != nil:
			d.addFinding(robocache.Finding{
				Severity:     robocache.SeverityWarning,
				Code:         objectsSkipped,
				Where:        robocache.Where{"file": best.frame, "member": v.name},
				Message:      "an array of " + best.typ.String() + ", not of numbers, is left out",
				NotDelivered: best.name,
			})
			d.recordTextClock(best)
		case v.bad.frames == readable:
			return v.bad.err
		default:
			class, _ := robocache.ClassOf(robocache.Classify(v.bad.err))
			stem := strings.TrimSuffix(v.name, ".npy")
			d.addFinding(robocache.Finding{
				Severity:     robocache.SeverityError,
				Code:         "bad-frame",
				Where:        robocache.Where{"member": v.name},
				Message:      v.bad.err.Error(),
				Hint:         "fetch the file again",
				NotDelivered: streamKey(stem),
				Class:        class,
			})
		}
	}
	d.About.Features = d.streamFeatures()
	for i := range d.About.Features {
		d.streams[d.About.Features[i].Key].feature = &d.About.Features[i]
	}
	return nil
}

// surveyFrames reads the directories of the first and last frames, and the headers of their arrays.
func (d *Dataset) surveyFrames(ctx context.Context) ([]surveyFrame, error) {
	var frames []surveyFrame
	for i, e := range d.episodes {
		frames = append(frames, surveyFrame{run: i})
		if last := int(e.rows()) - 1; last > 0 {
			frames = append(frames, surveyFrame{run: i, row: last})
		}
	}
	most := maxLocalHeaders
	if robocache.IsRemote(d.Bytes) {
		most = maxRemoteHeaders
	}
	signatures := make([]string, len(frames))
	if err := d.lookAtFrames(ctx, frames, func(ctx context.Context, i int, name string) error {
		if err := d.openFrame(ctx, name, func(_ robocache.Ranged, dir *zipdir.Dir) error {
			signatures[i] = signatureOf(dir)
			return nil
		}); err != nil {
			return err
		}
		if len(d.episodes) <= most {
			signatures[i] = name
		}
		return nil
	}); err != nil {
		return nil, err
	}
	classes := map[string]*frameClass{}
	var list []*frameClass
	for i := range frames {
		if frames[i].err != nil {
			continue
		}
		c := classes[signatures[i]]
		if c == nil {
			c = &frameClass{}
			classes[signatures[i]], list = c, append(list, c)
		}
		frames[i].class, c.frames = c, append(c.frames, i)
	}
	// The frame in the middle represents its class, because the first episode is more often an
	// unusual one.
	middle := make([]surveyFrame, len(list))
	for i, c := range list {
		middle[i] = frames[c.frames[len(c.frames)/2]]
	}
	if err := d.lookAtFrames(ctx, middle, func(ctx context.Context, i int, name string) error {
		c := list[i]
		c.name = name
		return d.openFrame(ctx, name, func(r robocache.Ranged, dir *zipdir.Dir) error {
			var err error
			if c.arrays, err = readArrays(ctx, r, dir); err != nil {
				return err
			}
			return nil
		})
	}); err != nil {
		return nil, err
	}
	for i, c := range list {
		for _, k := range c.frames {
			frames[k].err = middle[i].err
		}
	}
	return frames, nil
}

// lookAtFrames calls look for each frame, several calls in parallel. Damage is stored in the err of
// the frame.
func (d *Dataset) lookAtFrames(
	ctx context.Context,
	frames []surveyFrame,
	look func(ctx context.Context, i int, name string) error,
) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(max(4*runtime.GOMAXPROCS(0), remoteAtOnce))
	for i := range frames {
		f := &frames[i]
		g.Go(crash.Func("calvin open", func() error {
			name := d.frameName(d.episodes[f.run], f.row)
			err := robocache.At(look(ctx, i, name), robocache.Where{"file": name})
			if err := err; robocache.IsFatal(err) {
				return err
			}
			if err != nil && !robocache.Bad(err) && !errors.Is(err, robocache.ErrResourceLimit) {
				return err
			}
			f.err = err
			return nil
		}))
	}
	return g.Wait()
}

// openFrame calls use with the file of a frame and its directory.
func (d *Dataset) openFrame(
	ctx context.Context,
	name string,
	use func(robocache.Ranged, *zipdir.Dir) error,
) error {
	r, err := d.Bytes.Open(ctx, name)
	if err != nil {
		return err
	}
	defer r.Close()
	read, err := zipdir.Read(ctx, r, maxMember)
	if err != nil {
		return err
	}
	return use(r, read)
}

// signatureOf returns the names and sizes of a frame's arrays.
func signatureOf(dir *zipdir.Dir) string {
	var b strings.Builder
	for _, f := range dir.Files {
		fmt.Fprintf(&b, "%q %d\n", f.Name, f.Size)
	}
	return b.String()
}

// readArrays reads the headers of a frame's arrays.
func readArrays(
	ctx context.Context,
	r robocache.Ranged,
	dir *zipdir.Dir,
) (out []surveyArray, err error) {
	for i := range dir.Files {
		f := &dir.Files[i]
		if !strings.HasSuffix(f.Name, ".npy") {
			continue
		}
		b, err := dir.Prefix(ctx, r, f, headerPrefix)
		if err != nil {
			return nil, err
		}
		h, err := npy.ParseHeader(b)
		have := f.Size - int64(h.Offset)
		if err == nil && h.Type.DType() != robocache.InvalidDType && h.Bytes > have {
			err = robocache.Malformed(string(op), nil, "").
				Expected(
					fmt.Sprintf("%d bytes of an array of shape %v", h.Bytes, h.Shape),
					fmt.Sprint(have),
				)
		}
		a := surveyArray{err: robocache.At(err, robocache.Where{"member": f.Name})}
		a.member = member{
			name: strings.TrimSuffix(f.Name, ".npy"), file: f.Name, offset: -1,
			typ: h.Type, shape: h.Shape, bytes: h.Bytes, fortran: h.Fortran,
		}
		if err == nil {
			a.header = bytes.Clone(b[:h.Offset])
		}
		out = append(out, a)
	}
	return out, nil
}

// arrayVotes counts the types and shapes of the arrays with one name.
type arrayVotes struct {
	name       string // file name in the archive
	candidates []*arrayCandidate
	runs       map[int]bool // runs that have the array
	bad        struct {
		frames int
		err    error
	}
}

// arrayCandidate is one type and shape of an array.
type arrayCandidate struct {
	member
	frame   string // file of the first frame with this form
	votes   int    // number of runs
	lastRun int
}

// collectArrays counts the arrays of the frames. The result is in order of first occurrence.
func collectArrays(frames []surveyFrame) (names []*arrayVotes, err error) {
	byName := map[string]*arrayVotes{}
	for _, f := range frames {
		if f.err != nil {
			continue
		}
		for i := range f.class.arrays {
			a := &f.class.arrays[i]
			v := byName[a.file]
			if v == nil {
				v = &arrayVotes{name: a.file, runs: map[int]bool{}}
				byName[a.file], names = v, append(names, v)
			}
			v.runs[f.run] = true
			if a.err == nil {
				v.addVote(&a.member, f)
				continue
			}
			v.bad.frames++
			v.bad.err = cmp.Or(
				v.bad.err,
				robocache.At(a.err, robocache.Where{"file": f.class.name}),
			)
		}
		if len(names) > maxArrays {
			return names, robocache.ResourceLimit(string(op), nil, "too many arrays").
				Expected(fmt.Sprintf("at most %d", maxArrays), fmt.Sprint(len(names)))
		}
	}
	return names, nil
}

// addVote counts the type and shape of an array once for each run.
func (v *arrayVotes) addVote(m *member, f surveyFrame) {
	i := slices.IndexFunc(v.candidates, func(c *arrayCandidate) bool { return c.sameForm(m) })
	if i < 0 {
		i = len(v.candidates)
		v.candidates = append(
			v.candidates,
			&arrayCandidate{member: *m, frame: f.class.name, lastRun: -1},
		)
	}
	if c := v.candidates[i]; c.lastRun != f.run {
		c.votes, c.lastRun = c.votes+1, f.run
	}
}

// sameForm reports whether arrayData reads arrays like other as m.
func (m *member) sameForm(other *member) bool {
	a, b := m.typ, other.typ
	a.Big, b.Big = false, false
	return a == b && slices.Equal(m.shape, other.shape)
}

// mostCommon returns the most common type and shape, preferring numbers, and the first one if
// several are equally common. It returns nil if no header can be read.
func (v *arrayVotes) mostCommon() (best *arrayCandidate) {
	isNumeric := func(c *arrayCandidate) bool { return c.typ.DType() != robocache.InvalidDType }
	for _, c := range v.candidates {
		switch {
		case best == nil, isNumeric(c) && !isNumeric(best):
			best = c
		case isNumeric(c) == isNumeric(best) && c.votes > best.votes:
			best = c
		}
	}
	return best
}

// absentRuns returns the runs that have a readable frame, but no readable frame with the array.
func (v *arrayVotes) absentRuns(frames []surveyFrame) (runs []int32) {
	for _, f := range frames {
		last := len(runs) - 1
		if f.err == nil && !v.runs[f.run] && (last < 0 || runs[last] != int32(f.run)) {
			runs = append(runs, int32(f.run))
		}
	}
	return runs
}

// lacksStream reports whether an episode lacks the array of a stream.
func (d *Dataset) lacksStream(e episode, s *stream) bool {
	if s.member < 0 {
		return false
	}
	_, found := slices.BinarySearch(d.absent[s.member], e.run)
	return found
}

// Lacks reports whether an episode lacks a stream that other episodes have.
func (d *Dataset) Lacks(episode int, key string) bool {
	s := d.streams[key]
	return s != nil && episode >= 0 && episode < len(d.episodes) &&
		d.lacksStream(d.episodes[episode], s)
}

// reportLacking adds a finding for each stream that an episode lacks.
func (d *Dataset) reportLacking() {
	var lacking reader.LackingFindings
	for i, e := range d.episodes {
		for k := range d.About.Features {
			f := &d.About.Features[k]
			if s := d.streams[f.Key]; d.lacksStream(e, s) {
				where := robocache.Where{"episode": i, "file": d.frameName(e, 0), "stream": f.Key}
				lacking.Add(f, where, d.members[s.member].name)
			}
		}
	}
	d.About.Findings = append(d.About.Findings, lacking.List()...)
}

// checkLacking returns an error if a row belongs to an episode that lacks the stream.
func (d *Dataset) checkLacking(s *stream, rows []robocache.Row) error {
	for i, r := range rows {
		if i > 0 && r.Episode == rows[i-1].Episode {
			continue
		}
		if err := d.checkRow(r); err != nil {
			return err
		}
		if d.lacksStream(d.episodes[r.Episode], s) {
			return op.Lacks(robocache.Where{"episode": r.Episode, "stream": s.feature.Key})
		}
	}
	return nil
}

// documentedOrder lists the arrays in the order of CALVIN's documentation. Other arrays follow in
// file order.
var documentedOrder = []string{
	"actions",
	"rel_actions",
	"robot_obs",
	"scene_obs",
	"rgb_static",
	"rgb_gripper",
	"rgb_tactile",
	"depth_static",
	"depth_gripper",
	"depth_tactile",
}

func documentedAt(file string) int {
	if i := slices.Index(documentedOrder, strings.TrimSuffix(file, ".npy")); i >= 0 {
		return i
	}
	return len(documentedOrder)
}

func streamKey(member string) string {
	switch member {
	case "actions":
		return "action"
	case "rel_actions":
		return member
	}
	return "observation." + strings.ReplaceAll(member, "/", ".")
}

// addStreams adds the streams of a member, and sets the offset of numbers in frame.numbers.
func (d *Dataset) addStreams(m *member, offset *int) {
	dt, n := m.typ.DType(), len(m.shape)
	add := func(suffix string, from, channels int) {
		f := &robocache.Feature{
			Key: streamKey(
				m.name,
			) + suffix,
			Kind:     robocache.KindImage,
			DType:    dt,
			Height:   m.shape[0],
			Width:    m.shape[1],
			Channels: channels,
			Shape:    []int{m.shape[0], m.shape[1], channels},
			FPS:      d.rate,
			Names:    json.RawMessage(`["height","width","channel"]`),
		}
		f.StateDepth()
		d.streams[f.Key] = &stream{feature: f, member: len(d.members), from: from}
	}
	image := n >= 2 && m.shape[0] > 0 && m.shape[1] > 0
	switch {
	case image && n == 3 && dt == robocache.Uint8 && (m.shape[2] == 3 || m.shape[2] == 1):
		add("", 0, m.shape[2])
	case image && n == 3 && dt == robocache.Uint8 && m.shape[2] > 0 && m.shape[2]%3 == 0:
		for c := 0; c < m.shape[2]; c += 3 {
			add(fmt.Sprintf(".%d", c/3), c, 3)
		}
	case image && n == 2 && (dt == robocache.Float32 || dt == robocache.Uint16):
		add("", 0, 1)
	case image && n == 3 && (dt == robocache.Float32 || dt == robocache.Uint16) &&
		strings.HasPrefix(m.name, "depth"):
		for c := range m.shape[2] {
			suffix := fmt.Sprintf(".%d", c)
			if m.shape[2] == 1 {
				suffix = ""
			}
			add(suffix, c, 1)
		}
	default:
		shape := m.shape
		if n == 0 {
			shape = []int{1}
		}
		f := &robocache.Feature{
			Key:   streamKey(m.name),
			Kind:  robocache.KindNumeric,
			DType: dt,
			Shape: shape,
			FPS:   d.rate,
		}
		if m.name == "rel_actions" && len(shape) == 1 && dt.Float() {
			// Of fails only for named channels, and none is named here.
			f.Relative, _ = robocache.Relative{}.Of(f)
			f.RelativeReason = "as CALVIN defines it"
		}
		d.streams[f.Key] = &stream{feature: f, member: len(d.members)}
		m.offset = *offset
		*offset += int(m.bytes)
	}
}

// streamFeatures returns the features in the order of the members.
func (d *Dataset) streamFeatures() (out []robocache.Feature) {
	all := slices.SortedFunc(
		maps.Values(d.streams),
		func(a, b *stream) int { return cmp.Or(a.member-b.member, a.from-b.from) },
	)
	for _, s := range all {
		out = append(out, *s.feature)
	}
	return out
}

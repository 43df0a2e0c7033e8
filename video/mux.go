package video

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"math/bits"

	"github.com/goatnote-inc/robocache"
)

// Part is the run of frames From ≤ k < To of one file.
type Part struct {
	File     *File
	From, To int
}

// Concat joins frames without re-encoding them. It writes an mp4 to dst whose frame k has the
// presentation time k/rate. The moov comes first, and the movie has the timescale of the track. An
// edit list is written only to cancel the delay of reordered frames.
//
// Each part must begin at a sync sample that depends on no earlier sample. It must end before the
// frames of the next part. All parts must have the same sample entry (codec configuration, size,
// color) except for bit rates. Otherwise Concat returns ErrUnsupported: the caller can encode the
// frames or begin another file. All parts are checked before anything is written. The same parts
// produce the same bytes.
func Concat(ctx context.Context, dst io.Writer, parts []Part, rate robocache.Rate) (err error) {
	m, err := planJoin(ctx, parts, rate)
	if err != nil {
		return err
	}
	head, err := m.fileHeader()
	if err != nil {
		return err
	}
	if _, err := dst.Write(head); err != nil {
		return err
	}
	return m.copyMedia(ctx, dst)
}

const (
	opConcat   = "join videos"
	encodeHint = "encode the frames instead, or begin another file"
)

// joinPlan describes the file that Concat writes.
type joinPlan struct {
	parts       []sampleSpan
	entryBytes  []byte // sample entry, including its header
	sampleEntry *SampleEntry
	timescale   int64
	frameTicks  int64    // length of a frame in timescale units
	sizes       []uint32 // by decode index of the output
	ordinals    []uint32 // ordinals of the output by decode index; nil if frames are not reordered
	sync        []uint32 // decode indexes + 1
	delayFrames int64    // number of frames by which presentation lags behind decoding
	mediaBytes  int64    // bytes of all samples
}

// sampleSpan is the run of samples first..last of a file.
type sampleSpan struct {
	file        *File
	first, last int
}

// TrackTimescale returns the timescale and the frame length of files with a rate. The timescale is
// the rate's numerator, doubled until it is at least 10,000, like in LeRobot's recorder (a rate of
// 30 gives 15360 and 512).
func TrackTimescale(rate robocache.Rate) (timescale, delta int64, err error) {
	if rate.Num <= 0 || rate.Den <= 0 || rate.Num > math.MaxUint32 || rate.Den > 1<<24 {
		return 0, 0, robocache.Misuse(opConcat, nil, "").
			Expected("a rate between 0 and 4294967295", fmt.Sprintf("%d/%d", rate.Num, rate.Den))
	}
	timescale, delta = rate.Num, rate.Den
	for timescale < 10_000 {
		timescale, delta = 2*timescale, 2*delta
	}
	if delta > math.MaxInt32>>6 { // an offset of 32 bits must hold a delay of 64 frames
		return 0, 0, robocache.Unsupported(opConcat, nil, "the rate %s is too low", rate)
	}
	return timescale, delta, nil
}

// planJoin checks the parts and computes the tables of the output.
func planJoin(ctx context.Context, parts []Part, rate robocache.Rate) (*joinPlan, error) {
	plan := &joinPlan{}
	var err error
	if plan.timescale, plan.frameTicks, err = TrackTimescale(rate); err != nil {
		return nil, err
	}
	total := 0
	for i, p := range parts {
		if p.File == nil || p.From < 0 || p.To <= p.From || p.To > p.File.Index.NumFrames() {
			return nil, robocache.Misuse(
				opConcat,
				robocache.Where{"part": i},
				"frames %d to %d are not in the file",
				p.From,
				p.To,
			)
		}
		if p.To > p.File.Index.Whole() {
			return nil, partError(
				robocache.ErrMalformed,
				i,
				p,
				"the file is truncated: some of the frames are missing",
				"",
			)
		}
		total += p.To - p.From
	}
	if total == 0 {
		return nil, robocache.Misuse(opConcat, nil, "no frames to join")
	}
	plan.sizes = make([]uint32, 0, total)
	ordinals := make([]uint32, 0, total)
	reordered := false
	for i, p := range parts {
		first, last, err := plan.checkSamples(ctx, i, p)
		if err != nil {
			return nil, err
		}
		var partReordered bool
		ordinals, partReordered = plan.addPart(p, first, last, ordinals)
		reordered = reordered || partReordered
	}
	if reordered {
		plan.ordinals = ordinals
	}
	if plan.delayFrames > 64 {
		return nil, robocache.Unsupported(
			opConcat,
			nil,
			"frames are reordered by %d, limit 64",
			plan.delayFrames,
		)
	}
	if hi, lo := bits.Mul64(uint64(total+1), uint64(plan.frameTicks)); hi != 0 || lo > 1<<62 {
		return nil, robocache.ResourceLimit(opConcat, nil, "%d frames at %s", total, rate)
	}
	return plan, nil
}

// checkSamples returns the first and the last sample of part i. It returns an error if the part
// cannot be joined: if its samples are not adjacent, if it does not begin at a sync sample, or if
// its sample entry differs from that of the first part.
func (m *joinPlan) checkSamples(ctx context.Context, i int, p Part) (first, last int, err error) {
	ix := p.File.Index
	first, last = math.MaxInt, -1
	for k := p.From; k < p.To; k++ {
		d := ix.DecodeIndex(k)
		first, last = min(first, d), max(last, d)
	}
	unsupported := func(msg string) error {
		return partError(robocache.ErrUnsupported, i, p, msg, encodeHint)
	}
	start := ix.Sample(first)
	if last-first+1 != p.To-p.From {
		return first, last, unsupported("samples of other frames are between those of the part " +
			"(open GOP, or a cut by an edit list)")
	}
	if !start.Sync || ix.DecodeIndex(p.From) != first {
		return first, last, unsupported("the part does not begin at a sync sample")
	}
	raw := ix.rawStsd[start.Entry]
	if m.entryBytes == nil {
		m.entryBytes, m.sampleEntry = raw, &ix.entries[start.Entry]
	}
	if !bytes.Equal(comparableEntry(raw), comparableEntry(m.entryBytes)) ||
		ix.entries[start.Entry].Rotation != m.sampleEntry.Rotation ||
		ix.entryOf(last) != start.Entry {
		return first, last, unsupported(
			"the sample entry (codec configuration) differs from the first part's",
		)
	}
	if err := checkClosed(ctx, p.File, start, i > 0); err != nil {
		where := robocache.Where{"part": i, "file": p.File.Path, "frame": p.From}
		return first, last, robocache.At(err, where)
	}
	return first, last, nil
}

// addPart appends a part, whose samples are first to last, to the tables. ordinals are the frame
// numbers of the samples so far, with capacity for those of the part. addPart returns ordinals with
// the part, and whether decode order and presentation order of the part differ.
func (m *joinPlan) addPart(
	p Part,
	first, last int,
	ordinals []uint32,
) (_ []uint32, reordered bool) {
	ix := p.File.Index
	base := len(m.sizes)
	m.sizes = m.sizes[:base+p.To-p.From]
	ordinals = ordinals[:len(m.sizes)]
	for k := p.From; k < p.To; k++ {
		// The frame's decode index and frame number in the joined file.
		decodeIndex, ordinal := base+ix.DecodeIndex(k)-first, base+k-p.From
		ordinals[decodeIndex] = uint32(ordinal)
		reordered = reordered || decodeIndex != ordinal
		m.delayFrames = max(m.delayFrames, int64(decodeIndex)-int64(ordinal))
	}
	for d := first; d <= last; d++ {
		s := ix.Sample(d)
		m.sizes[base+d-first] = uint32(s.Size)
		m.mediaBytes += int64(s.Size)
		if s.Sync {
			m.sync = append(m.sync, uint32(base+d-first+1))
		}
	}
	m.parts = append(m.parts, sampleSpan{p.File, first, last})
	return ordinals, reordered
}

// squarePixels is a box that states the default, so it is ignored.
var squarePixels = []byte("\x00\x00\x00\x10pasp\x00\x00\x00\x01\x00\x00\x00\x01")

// comparableEntry returns the parts of a sample entry that matter to a decoder. It zeroes the name
// of the compressor.
func comparableEntry(raw []byte) []byte {
	const compressor = 8 + 42
	out := bytes.ReplaceAll(raw[4:], squarePixels, nil)
	clear(out[compressor-4 : compressor+28])
	return out
}

// partError returns an error that names part i and its file.
func partError(class error, i int, p Part, msg, hint string) error {
	return robocache.NewError(class, opConcat,
		robocache.Where{"part": i, "file": p.File.Path, "frame": p.From}, "%s", msg).
		WithHint("%s", hint)
}

// checkClosed returns an error if the first frame after a joint does not reset the decoder. H.264
// recovery points and HEVC CRA frames refer to the frame order before them, which differs in a
// joined file.
func checkClosed(ctx context.Context, f *File, s Sample, joint bool) (err error) {
	e := &f.Index.entries[s.Entry]
	if !joint || e.Codec != H264 && e.Codec != HEVC {
		return nil
	}
	x, err := NewElementary(e)
	if err != nil {
		x = &Elementary{codec: e.Codec, lengthBytes: 4}
	}
	buf := make([]byte, s.Size)
	if err := f.Ranged.ReadAt(ctx, buf, s.Offset); err != nil {
		return err
	}
	resets := false
	err = func() error {
		return x.eachUnit(buf, func(nal []byte) {
			h264Kind, hevcKind := nal[0]&31, nal[0]>>1&63 // NAL unit types
			// The last type of key frames of HEVC is CRA, which does not reset the decoder.
			isReset264 := e.Codec == H264 && h264Kind == h264KeySlice
			isResetHEVC := e.Codec == HEVC && hevcKind >= hevcFirstKey && hevcKind < hevcLastKey
			resets = resets || isReset264 || isResetHEVC
		})
	}()
	if resets {
		return nil
	}
	if err != nil {
		return err
	}
	return robocache.Unsupported(opConcat, nil,
		"the part begins at a frame that does not reset the decoder (not an IDR frame)").
		WithHint("%s", encodeHint)
}

// maxCopyRead is the maximum size of one read of adjacent samples, in bytes.
const maxCopyRead = 1 << 20

// copyMedia writes the samples of all parts in decode order.
func (m *joinPlan) copyMedia(ctx context.Context, dst io.Writer) error {
	buf := make([]byte, maxCopyRead)
	for i, p := range m.parts {
		ix := p.file.Index
		for d := p.first; d <= p.last; {
			s := ix.Sample(d)
			off, n := s.Offset, int64(s.Size)
			for d++; d <= p.last; d++ {
				next := ix.Sample(d)
				if next.Offset != off+n || n+int64(next.Size) > maxCopyRead {
					break
				}
				n += int64(next.Size)
			}
			for n > 0 {
				piece := buf[:min(n, maxCopyRead)]
				if err := p.file.Ranged.ReadAt(ctx, piece, off); err != nil {
					return robocache.At(
						err,
						robocache.Where{"part": i, "file": p.file.Path, "offset": off},
					)
				}
				if _, err := dst.Write(piece); err != nil {
					return err
				}
				off, n = off+int64(len(piece)), n-int64(len(piece))
			}
		}
	}
	return nil
}

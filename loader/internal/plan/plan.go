package plan

import (
	"context"
	"fmt"
	"slices"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader/internal/column"
	"github.com/goatnote-inc/robocache/loader/internal/layout"
	"github.com/goatnote-inc/robocache/loader/internal/order"
	"github.com/goatnote-inc/robocache/loader/options"
	"github.com/goatnote-inc/robocache/video"
)

// Plan holds what a pipeline executes: the compiled sources and the schema of their batches. It is
// immutable after Compile, except for Report, and for Resources, which the pipeline sets before the
// first batch.
type Plan struct {
	Config        options.Config // with defaults
	Sources       []*Source      // at least one
	Schema        *layout.Schema
	FrameDevice   video.DeviceMemory // holds the frames of batches; nil: the host does
	DeviceWorkers int                // workers that wait for the device that decodes
	CacheFolder   *CacheFolder
	Report        *Report
	Resources     *column.Resources
}

// Compile compiles the sources of a mixture under a validated configuration. A single source is a
// mixture of one. It rejects options that the datasets cannot satisfy. The caller must call Close.
func Compile(ctx context.Context, sources []options.Mix, cfg options.Config) (_ *Plan, err error) {
	p := &Plan{Config: cfg, Report: &Report{}, Resources: &column.Resources{}}
	p.CacheFolder = &CacheFolder{Config: &p.Config}
	defer func() {
		if err != nil {
			p.Close()
		}
	}()
	var offset int64
	for i := range sources {
		src, err := p.compileSource(ctx, sources, i, offset)
		if err != nil {
			return nil, src.WithPlace(err)
		}
		offset += src.Table.Samples()
	}
	pad := cfg.Missing == options.MissingPad
	if err := widenRows(p.Sources, sources, pad); err != nil {
		return nil, err
	}
	deferOps(p.Sources)
	p.FrameDevice = keepFramesOnDevice(&p.Config, p.Sources)
	if p.FrameDevice == nil && cfg.Cache == options.CacheOnDevice {
		return nil, robocache.Unsupported("loader", nil, "%s: no frames of these batches are "+
			"made on a device", robocache.Option("cache", "device")).
			WithHint(`Decode video on the device (%s or "auto"), and without normalize, image_dtype or augment of frames that the device cannot finish; a folder of that name is "./device"`,
				robocache.Option("decode", "gpu"))
	}
	for _, src := range p.Sources {
		src.describeSchema()
	}
	if !p.HasSampleEpochs() {
		p.Sources[0].shareFrames()
	}
	p.Schema, err = newSchema(p.Sources, pad)
	return p, err
}

// compileSource opens and compiles source i. It returns the source even on error.
func (p *Plan) compileSource(
	ctx context.Context,
	mix []options.Mix,
	i int,
	offset int64,
) (src *Source, err error) {
	src = &Source{report: p.Report, folder: p.CacheFolder}
	src.Dataset, src.Index, src.SampleOffset = mix[i].Dataset, i, offset
	src.PaddedRows, src.Resources = map[string]*layout.PaddedRow{}, p.Resources
	if len(mix) > 1 { // a single source needs no name in messages
		src.Name, src.Place = mix[i].Name, options.PlaceOfSource(i, &mix[i])
	}
	src.Config, err = mix[i].SourceConfig(p.Config, len(mix) > 1, column.GeneratedKeys())
	if err != nil {
		return src, err
	}
	src.constants = mix[i].Constants
	note, err := src.chooseEpisodes()
	if err != nil {
		return src, err
	}
	if err := src.applyWhere(ctx); err != nil {
		return src, robocache.At(err, robocache.Where{"option": "where"})
	}
	if note != "" {
		p.Report.Notes = append(p.Report.Notes, note)
	}
	p.Sources = append(p.Sources, src)
	p.CacheFolder.cacheReads(src.Dataset)
	if err := src.open(ctx, len(mix)); err != nil {
		return src, err
	}
	if src.deviceWorkers > 0 {
		p.DeviceWorkers = src.deviceWorkers
	}
	notes, err := src.alignNotes(ctx)
	for _, note := range notes {
		p.Report.addNote(note)
	}
	return src, err
}

// keepFramesOnDevice configures raw batches to keep decoded frames in the memory of the device. All
// sources must decode on the same device. It returns that device, or nil if frames go to the host.
func keepFramesOnDevice(cfg *options.Config, sources []*Source) (used video.DeviceMemory) {
	device := sources[0].decodeDevice
	if !cfg.Raw || cfg.Cache != "" && cfg.Cache != options.CacheOnDevice || device == nil {
		return nil
	}
	for _, own := range sources[0].Columns {
		stays := !slices.ContainsFunc(sources, func(src *Source) bool {
			c := src.ImageColumn(own.Key)
			return c == nil || src.decodeDevice != device || c.IsStill ||
				c.Spec.Pixel != video.RGB8 || c.Norm != nil || c.Augment != nil && c.Deferred == nil
		})
		if !stays {
			continue
		}
		used = device
		for _, src := range sources {
			for _, c := range src.Column(own.Key).Alternatives() {
				c.Image().FrameDevice = device
			}
		}
	}
	return used
}

// Close releases the files of all sources and the cache directory. The datasets stay open.
func (p *Plan) Close() {
	for _, src := range p.Sources {
		src.close()
	}
	p.CacheFolder.close()
}

// SampleCount returns the number of samples of all sources.
func (p *Plan) SampleCount() int64 {
	last := p.Sources[len(p.Sources)-1]
	return last.SampleOffset + last.Table.Samples()
}

// HasSampleEpochs reports whether samples have epochs other than that of the loader, because there
// are several sources or weights of episodes.
func (p *Plan) HasSampleEpochs() bool { return len(p.Sources) > 1 || p.Sources[0].weights != nil }

// HasVideo reports whether a source delivers frames of video.
func (p *Plan) HasVideo() bool {
	return slices.ContainsFunc(p.Sources, func(src *Source) bool { return src.Files != nil })
}

// HasFrames reports whether a source delivers frames, of video or of still images.
func (p *Plan) HasFrames() bool {
	return slices.ContainsFunc(p.Sources, func(src *Source) bool {
		return slices.ContainsFunc(src.Columns, column.Is[*column.ImageColumn])
	})
}

// KeepsPlanes reports whether frames are cached as the decoder's planes. They take half the bytes
// of RGB at the size of the file, and every pixel format can be made of them. At another size,
// pixels are smaller and need not be scaled again.
func (p *Plan) KeepsPlanes() bool {
	switch p.Config.CacheFormat {
	case options.CachePlanes:
		return true
	case options.CachePixels:
		return false
	}
	return !slices.ContainsFunc(
		p.Sources,
		func(src *Source) bool {
			return len(src.Config.ImageSize) > 0 || src.Config.HasFilter()
		},
	)
}

// SourceOf returns the source of a sample, and the number of the sample in that source.
func (p *Plan) SourceOf(sample int64) (*Source, int64) {
	i := len(p.Sources) - 1
	for p.Sources[i].SampleOffset > sample {
		i--
	}
	return p.Sources[i], sample - p.Sources[i].SampleOffset
}

// Locate calls each with the source and the row of every sample in indices. i is the position in
// indices.
func (p *Plan) Locate(indices []int64, each func(i, source int, r robocache.Row)) error {
	n := p.SampleCount()
	for _, i := range indices {
		if i < 0 || i >= n {
			return robocache.Misuse("loader", robocache.Where{"index": i}, "index out of range").
				Expected(fmt.Sprintf("0 to %d", n-1), fmt.Sprint(i))
		}
	}
	for i, sample := range indices {
		src, number := p.SourceOf(sample)
		r, _ := src.Table.Row(number)
		each(i, src.Index, r)
	}
	return nil
}

// RowsOf returns the rows of samples in their sources.
func (p *Plan) RowsOf(indices []int64) ([]robocache.Row, error) {
	out := make([]robocache.Row, len(indices))
	err := p.Locate(indices, func(i, _ int, r robocache.Row) { out[i] = r })
	return out, err
}

// SampleTimes returns the times of samples in ns.
func (p *Plan) SampleTimes(ctx context.Context, indices []int64) ([]int64, error) {
	out := make([]int64, len(indices))
	for i, sample := range indices {
		src, number := p.SourceOf(sample)
		at, err := src.SampleTime(ctx, number)
		if err != nil {
			return nil, err
		}
		out[i] = at
	}
	return out, nil
}

// NewOrder returns the order of the sources' epochs. mix holds their names and weights. Declared
// sizes decide how many samples a pool holds.
func (p *Plan) NewOrder(mix []options.Mix) (*order.Ordering, error) {
	cfg := &p.Config
	// An eighth of the pool is for the frames of batches under construction.
	params := order.Params{
		Mode:         cfg.Shuffle,
		PoolBytes:    int64(cfg.PoolSize) / 8 * 7,
		PoolEpisodes: cfg.PoolEpisodes,
		Shards:       cfg.PoolShards,
	}
	m := &order.MixParams{
		Temperature: cfg.Temperature,
		Stop:        cfg.Stop,
		EpochSize:   cfg.EpochSize,
		Stratified:  cfg.Stratified,
		Balance:     cfg.BalanceWeights,
		GlobalBatch: int64(cfg.BatchSize) * int64(cfg.WorldSize),
	}
	tables := make([]*order.Table, len(p.Sources))
	for i, src := range p.Sources {
		params.SampleBytes = append(
			params.SampleBytes,
			column.ResidentBytes(&src.DataSource, p.KeepsPlanes()),
		)
		tables[i] = src.orderTable()
	}
	for i := range mix {
		m.Names = append(m.Names, mix[i].Name)
		m.Primary = append(m.Primary, mix[i].Primary)
		if mix[i].Weight != nil {
			m.Weights = append(m.Weights, *mix[i].Weight)
		}
	}
	return order.New(params, order.NewCatalog(tables...), m, cfg.Seed)
}

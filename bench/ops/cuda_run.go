package ops

import (
	"context"
	"fmt"
	"sync"

	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel/cpu"
	"github.com/goatnote-inc/robocache/kernel/cuda"
)

// peerProcesses is how many interpreters compile the peers' kernels beside each other: torch.compile takes seconds a shape, and a lease is short.
const peerProcesses = 6

// gpuRow is a row that is ready for its rounds.
type gpuRow struct {
	res    *Result
	in     *inputs
	call   *opCall
	truth  *truth
	copies int
	peers  []*peer // that hold it
	theirs []*candidate
	err    error
}

// cuda measures the rows on a device. First every peer sets its rows up, many at once; then rows are timed one by one, runners in turn.
func (r *Run) cuda(ctx context.Context, rep *Report, dir string) error {
	g, err := openGPU(r.Ordinal)
	if err != nil {
		return err
	}
	defer g.close()
	rep.Device = g.describe()
	rep.Cache = rep.Device.L2
	peers, err := r.peers(ctx, "cuda", 1, min(peerProcesses, max(1, len(r.Rows))))
	if err != nil {
		return err
	}
	defer closePeers(peers)
	// The same script in several processes: a row goes to one process of each script.
	byScript := map[string][]*peer{}
	var scripts []string
	for _, p := range peers {
		if byScript[p.script] == nil {
			scripts = append(scripts, p.script)
		}
		byScript[p.script] = append(byScript[p.script], p)
	}
	ref := cpu.New(0) // equal to the reference to the bit (kernel/conform), and done before a device is tired of waiting
	rows := make([]*gpuRow, len(r.Rows))
	var mu sync.Mutex // of rep.Versions
	var wg sync.WaitGroup
	room := make(chan struct{}, 2*peerProcesses)
	for i := range r.Rows {
		row := &gpuRow{res: &Result{Row: r.Rows[i]}}
		rows[i] = row
		for _, s := range scripts {
			row.peers = append(row.peers, byScript[s][i%len(byScript[s])])
		}
		room <- struct{}{}
		wg.Go(func() {
			defer func() { <-room }()
			row.err = r.ready(row, ref, rep, dir, &mu)
		})
	}
	wg.Wait()
	for _, row := range rows {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if row.err != nil {
			return robocache.At(row.err, robocache.Where{"row": row.res.Name})
		}
		if err := r.gpuRow(ctx, g, row); err != nil {
			return err
		}
		r.drop(row.peers, row.res.Name)
		row.in, row.call, row.truth, row.theirs = nil, nil, nil, nil
		if err := r.finish(rep, row.res); err != nil {
			return err
		}
	}
	return nil
}

// ready makes a row's inputs and truth, and has the peers set it up.
func (r *Run) ready(row *gpuRow, ref backend, rep *Report, dir string, mu *sync.Mutex) error {
	w := &row.res.Work
	if w.Kind == "shards" || w.Kind == "shards-host" {
		if n, _ := cuda.Count(); n < 2 {
			row.res.Skipped = fmt.Sprintf("needs two devices: %d here", n)
			return nil
		}
	}
	if w.Kind == "flow" || w.Kind == "shards-host" {
		// Inputs are made on the spot, page-locked. All of them cross the bus, whether a target reads them or not.
		s := w.Streams[0]
		row.res.Bytes = int64(w.B) * int64(s.S*(s.D*elementSize(w.DType)+8)+w.T*(s.D*elementSize(w.Out)+8))
		return nil
	}
	var err error
	if row.in, err = newInputs(w); err != nil {
		return err
	}
	row.res.Bytes = w.bytes(row.in)
	row.copies = copiesFor(row.res.Bytes, rep.Cache)
	if row.truth, err = newTruth(w, row.in, ref); err != nil {
		return err
	}
	if row.call, err = row.in.call(w); err != nil {
		return err
	}
	part := &Report{Versions: map[string]string{}}
	row.theirs, err = r.setup(part, row.peers, row.res, row.in, row.truth, dir, 1, row.copies)
	mu.Lock()
	defer mu.Unlock()
	for k, v := range part.Versions {
		rep.Versions[k] = v
	}
	return err
}

// gpuRow checks ours and lets the runners take turns.
func (r *Run) gpuRow(ctx context.Context, g *gpu, row *gpuRow) error {
	if row.res.Skipped != "" {
		return nil
	}
	var done func()
	var field []*candidate
	var err error
	switch row.res.Work.Kind {
	case "call": // ours is one of the peers' processes: Python
		return r.rounds(ctx, row.res, row.theirs, false)
	case "flow":
		field, done, err = r.flowRow(row.res, g)
	case "shards", "shards-host":
		field, done, err = r.shardRow(row.res, row.in, row.truth)
	default:
		field, done = r.opRow(g, row)
	}
	defer done()
	if err != nil {
		field = []*candidate{{runner: Runner{Name: Ours, Failed: err.Error()}}}
	}
	return r.rounds(ctx, row.res, append(field, row.theirs...), r.Cold && row.res.Work.isOp())
}

// opRow is ours, checked, and the copy.
func (r *Run) opRow(g *gpu, row *gpuRow) ([]*candidate, func()) {
	ours := &candidate{runner: Runner{Name: Ours, Setting: "kernel/cuda, in a CUDA graph"}}
	runner, err := g.newRunner(row.call, row.copies)
	if err == nil {
		err = runner.once(row.call)
	}
	if err == nil {
		err = row.truth.compare(row.call.results())
	}
	if err != nil {
		ours.runner.Failed = err.Error()
	} else {
		row.res.Checked = row.truth.words()
	}
	ours.c = runner
	return []*candidate{ours, {Runner{Name: "copy go", Setting: "stream copy of 2 GiB, scaled to the row's bytes"}, gpuCopyRunner{g, row.res.Bytes}}}, runner.close
}

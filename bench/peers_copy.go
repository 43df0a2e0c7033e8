package bench

import (
	"math/rand/v2"
	"sync"
	"time"
)

// CopyRun is the limit of a warm cache: batches of frames copied from random places of a source that no cache of the processor holds
// into rotating buffers, by threads, for about the seconds given. A sample is a frame.
func CopyRun(frameBytes, batch, threads int, seconds float64) Outcome {
	const images, buffers = 1024, 8
	source := make([]byte, images*frameBytes)
	for i := range source { // touched: reading an untouched page reads one page of zeros
		source[i] = byte(i)
	}
	dst := make([][]byte, buffers*threads)
	for i := range dst {
		dst[i] = make([]byte, batch*frameBytes)
		for k := 0; k < len(dst[i]); k += 4096 {
			dst[i][k] = 1
		}
	}
	run := func(end time.Time) int64 {
		var wg sync.WaitGroup
		done := make([]int64, threads)
		for t := range threads {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(t)))
				for k := 0; time.Now().Before(end); k++ {
					to := dst[t*buffers+k%buffers]
					for i := range batch {
						from := rng.IntN(images) * frameBytes
						copy(to[i*frameBytes:(i+1)*frameBytes], source[from:from+frameBytes])
					}
					done[t] += int64(batch)
				}
			})
		}
		wg.Wait()
		total := int64(0)
		for _, n := range done {
			total += n
		}
		return total
	}
	run(time.Now().Add(time.Duration(seconds / 4 * 1e9)))
	cpu, start := selfCPU(), time.Now()
	n := run(start.Add(time.Duration(seconds * 1e9)))
	return Outcome{Samples: n, Delivered: n, Seconds: time.Since(start).Seconds(), CPUSeconds: selfCPU() - cpu}
}

package defects

import "math/rand/v2"

// sizesOf returns the sizes of a defect: multiples of the spread, or frames.
func (d *defect) sizesOf() []float64 {
	if d.measure != nil {
		return spreads
	}
	return frames
}

// makeEpisodes returns clean episodes, and planted ones of every defect and size, in a random
// order.
func makeEpisodes(clean, repeats int, seed uint64) []*episode {
	var out []*episode
	for i := range clean {
		out = append(out, makeEpisode(seed<<32+uint64(i), i%len(tasks)))
	}
	originals := out
	next := uint64(clean)
	for k := range allDefects {
		d := &allDefects[k]
		mean, spread := 0.0, 0.0
		if d.measure != nil {
			values := make([]float64, len(originals))
			for i, e := range originals {
				values[i] = d.measure(e)
			}
			mean, spread = meanAndSpread(values)
		}
		for size, strength := range d.sizesOf() {
			for range repeats {
				from := originals[int(next)%len(originals)]
				out = append(out, d.plant(seed<<32+next, size, strength, mean, spread, from))
				next++
			}
		}
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	rng.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	// A copy comes after its original, because the later one is the duplicate.
	at := map[*episode]int{}
	for i, e := range out {
		at[e] = i
	}
	for _, e := range out {
		if i := at[e]; e.original != nil && at[e.original] > i {
			k := at[e.original]
			out[i], out[k] = out[k], out[i]
			at[out[i]], at[out[k]] = i, k
		}
	}
	return out
}

// plant returns an episode with a defect. from is the clean episode that copies repeat.
func (d *defect) plant(
	seed uint64, size int, strength, mean, spread float64, from *episode,
) *episode {
	taskNumber := int(seed % uint64(len(tasks)))
	var e *episode
	switch {
	case d.name == "duplicate":
		e = from.copyWithNoise([]float64{1, 0.5, 0}[size])
	case d.name == "mirrored":
		e = from.copyWithNoise([]float64{1, 0.5, 0}[size])
		e.mirror()
	case d.name == "wrong_task":
		e = makeEpisode(seed, taskNumber)
		e.task = (taskNumber + 1) % len(tasks)
	case d.measure == nil:
		e = makeEpisode(seed, taskNumber)
		d.apply(e, strength)
	default:
		target := mean + strength*spread
		if d.less {
			target = mean - strength*spread
		}
		low, high := 0.0, d.top
		for range 16 {
			middle := (low + high) / 2
			e = makeEpisode(seed, taskNumber)
			d.apply(e, middle)
			if d.measure(e) < target != d.less {
				low = middle
			} else {
				high = middle
			}
		}
		e = makeEpisode(seed, taskNumber)
		d.apply(e, high)
	}
	e.defect, e.size = d.name, size
	return e
}

// copyWithNoise returns a copy of an episode that was recorded or encoded again: its sensors have
// new noise, times the factor.
func (e *episode) copyWithNoise(factor float64) *episode {
	c := makeEpisode(e.seed, e.task)
	c.original = e
	for i := range c.state {
		for j := range dims {
			c.state[i][j] += factor * sensorNoise * c.rng.NormFloat64()
			c.action[i][j] += factor * sensorNoise * c.rng.NormFloat64()
		}
	}
	for k := range c.looks {
		c.looks[k].noise *= 1 + 0.1*factor
	}
	return c
}

// mirror negates the joints that turn about the vertical axis, and mirrors the images.
func (e *episode) mirror() {
	for i := range e.state {
		for _, j := range []int{0, 3, 5} {
			e.state[i][j], e.action[i][j] = -e.state[i][j], -e.action[i][j]
		}
	}
	for k := range e.looks {
		e.looks[k].mirrored = true
	}
}

package options

// What Config.Cache names, beside a directory.
const (
	CacheInRAM    = "ram"
	CacheOnDevice = "device"
)

// HasCacheDirectory says that the cache is one.
func (cfg *Config) HasCacheDirectory() bool {
	return cfg.Cache != "" && cfg.Cache != CacheInRAM && cfg.Cache != CacheOnDevice
}

// CachesEncoded says that the cache directory keeps what is read of remote files, and not frames.
func (cfg *Config) CachesEncoded() bool {
	return cfg.CacheFormat == CacheEncoded || cfg.CacheFormat == CacheAuto && len(cfg.ImageSize) == 0
}

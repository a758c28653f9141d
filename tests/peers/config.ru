# A Rack application: answers with the method, the path and the length of the content.
run(lambda do |env|
  length = 0
  while (piece = env['rack.input'].read(1 << 16))
    length += piece.bytesize
  end
  text = "#{env['REQUEST_METHOD']} #{env['PATH_INFO']} #{length}"
  stream = Enumerator.new { |out| 1000.times { out << "line\n" } }
  [200, {}, env['PATH_INFO'] == '/stream' ? stream : [text]]
end)

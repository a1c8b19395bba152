# Puts page/index.html, with its styles and scripts inside, into tandem_server as page_html() of server/page.h.
# Included by src/CMakeLists.txt behind the room.

set(page_dir ${CMAKE_SOURCE_DIR}/src/server/page)
set(page_parts index.html style.css markdown.js keep.js turns.js panel.js page.js)
foreach(part IN LISTS page_parts)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${page_dir}/${part})
endforeach()
file(READ ${page_dir}/index.html page_text)
file(READ ${page_dir}/style.css page_style)
set(page_script "")
foreach(part IN LISTS page_parts)
  if(part MATCHES "\\.js$")
    file(READ ${page_dir}/${part} page_part)
    string(APPEND page_script "${page_part}")
  endif()
endforeach()
string(REPLACE "{{style}}" "${page_style}" page_text "${page_text}")
string(REPLACE "{{script}}" "${page_script}" page_text "${page_text}")
# A raw string literal holds the file as it is; compilers limit one literal's length, so it is cut.
string(LENGTH "${page_text}" page_length)
set(page_literals "")
set(page_at 0)
while(page_at LESS page_length)
  string(SUBSTRING "${page_text}" ${page_at} 12000 page_part)
  string(APPEND page_literals "R\"~page~(${page_part})~page~\"\n")
  math(EXPR page_at "${page_at} + 12000")
endwhile()
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/page_html.cc CONTENT
"#include \"server/page.h\"

namespace tandem::server {

std::string_view page_html() {
  static constexpr std::string_view kPage =
@page_literals@;
  return kPage;
}

}  // namespace tandem::server
" @ONLY)
target_sources(tandem_server PRIVATE ${CMAKE_BINARY_DIR}/generated/page_html.cc)
